// rustc main.rs -L OUT -l static=distances
use std::os::raw::{c_int, c_void};

extern "C" {
    fn distances(x: *const f64, lengths: *mut f64, total: *mut f64, n: i64, work: *mut c_void) -> c_int;
    fn distances_work_bytes(n: i64) -> usize;
}

/// The lengths of rows of three, and the sum of all elements; None for too many rows, or none.
fn lengths_of(x: &[[f64; 3]]) -> Option<(Vec<f64>, f64)> {
    let mut lengths = vec![0.0; x.len()];
    let mut total = 0.0;
    // SAFETY: the arrays have the sizes that distances.h asks for, and do not overlap.
    let n = x.len() as i64;
    let code = unsafe {
        let mut work = vec![0u64; distances_work_bytes(n) / 8 + 1];
        distances(x.as_ptr().cast(), lengths.as_mut_ptr(), &mut total, n, work.as_mut_ptr().cast())
    };
    (code == 0).then_some((lengths, total))
}

fn main() {
    let (lengths, total) = lengths_of(&[[3.0, 0.0, 4.0], [1.0, 2.0, 2.0]]).expect("two rows");
    println!("{} {} {}", lengths[0], lengths[1], total);
    assert!(lengths_of(&[]).is_none());
}
