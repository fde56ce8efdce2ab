// c++ -std=c++17 main.cpp -IOUT OUT/libdistances.a
#include "libdistances.h"

#include <iostream>
#include <stdexcept>
#include <vector>

static std::vector<double> lengths_of(const std::vector<double> &x, double &total)
{
    std::vector<double> lengths(x.size() / 3);
    const auto rows = static_cast<int64_t>(lengths.size());
    std::vector<double> work(distances_work_bytes(rows) / sizeof(double) + 1);
    if (distances(x.data(), lengths.data(), &total, rows, work.data()) != 0) {
        throw std::out_of_range("distances: the number of rows");
    }
    return lengths;
}

int main()
{
    double total = 0.0;
    const auto lengths = lengths_of({3.0, 0.0, 4.0, 1.0, 2.0, 2.0}, total);
    std::cout << lengths[0] << ' ' << lengths[1] << ' ' << total << '\n';
    try {
        lengths_of({}, total);
    } catch (const std::out_of_range &) {
        return 0;
    }
    return 1;
}
