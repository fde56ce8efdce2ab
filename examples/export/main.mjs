// node main.mjs OUT: a module of WebAssembly, as in a browser.
import {readFileSync} from "node:fs";
import {argv, exit} from "node:process";

const bytes = readFileSync(`${argv[2]}/distances.wasm`);
const {instance} = await WebAssembly.instantiate(bytes);
const {memory, distances, distances_work_bytes, __heap_base} = instance.exports;

// The memory from __heap_base on is the caller's: arrays stand there one after another.
let end = __heap_base.value;
function place(size) {
    const at = end;
    end += Math.ceil(size / 64) * 64;
    const missing = end - memory.buffer.byteLength;
    if (missing > 0) memory.grow(Math.ceil(missing / 65536));
    return at;
}

const rows = 2;
const [x, lengths, total] = [place(8 * 3 * rows), place(8 * rows), place(8)];
const work = place(distances_work_bytes(rows));
new Float64Array(memory.buffer, x, 3 * rows).set([3, 0, 4, 1, 2, 2]);
if (distances(x, lengths, total, rows, work) !== 0) exit(1);
const results = [...new Float64Array(memory.buffer, lengths, rows), new Float64Array(memory.buffer, total, 1)[0]];
console.log(results.join(" "));
exit(distances(x, lengths, total, 0, work) === 1 ? 0 : 1);
