// Differences of two lists of numbers: anchors are the lines that are unique in both (patience),
// and between anchors the longest common subsequence. Gives [sign, i, j] in reading order.
const MOST_CELLS = 4e6;

function difference(a, b) {
  const out = [];
  const work = [[0, a.length, 0, b.length]];
  while (work.length) {
    let [i, iEnd, j, jEnd] = work.pop();
    while (i < iEnd && j < jEnd && a[i] === b[j]) out.push([" ", i++, j++]);
    let same = 0;
    while (i < iEnd - same && j < jEnd - same && a[iEnd - 1 - same] === b[jEnd - 1 - same]) same++;
    if (same) work.push([iEnd - same, iEnd, jEnd - same, jEnd]);
    iEnd -= same; jEnd -= same;
    if (i === iEnd || j === jEnd) {
      while (i < iEnd) out.push(["-", i++, j]);
      while (j < jEnd) out.push(["+", i, j++]);
      continue;
    }
    const anchors = commonUnique(a, i, iEnd, b, j, jEnd);
    if (anchors.length) {
      const parts = [];
      for (const [x, y] of anchors) { parts.push([i, x, j, y], [x, x + 1, y, y + 1]); i = x + 1; j = y + 1; }
      parts.push([i, iEnd, j, jEnd]);
      work.push(...parts.reverse());
    } else common(a, i, iEnd, b, j, jEnd, out);
  }
  return out;
}

// Pairs of positions of elements that occur once on each side, in an order that both share.
function commonUnique(a, i, iEnd, b, j, jEnd) {
  const seen = new Map();  // element → [times in a, position in a, times in b, position in b]
  for (let x = i; x < iEnd; x++) { const s = seen.get(a[x]); if (s) s[0]++; else seen.set(a[x], [1, x, 0, 0]); }
  for (let y = j; y < jEnd; y++) { const s = seen.get(b[y]); if (s) { s[2]++; s[3] = y; } }
  const pairs = [];
  for (const s of seen.values()) if (s[0] === 1 && s[2] === 1) pairs.push([s[1], s[3]]);
  pairs.sort((p, q) => p[0] - q[0]);
  const ends = [], before = new Int32Array(pairs.length).fill(-1);  // longest rising run of the second
  pairs.forEach((pair, n) => {
    let low = 0, high = ends.length;
    while (low < high) { const mid = (low + high) >> 1; if (pairs[ends[mid]][1] < pair[1]) low = mid + 1; else high = mid; }
    if (low) before[n] = ends[low - 1];
    ends[low] = n;
  });
  const run = [];
  for (let n = ends.length ? ends[ends.length - 1] : -1; n >= 0; n = before[n]) run.push(pairs[n]);
  return run.reverse();
}

function common(a, i, iEnd, b, j, jEnd, out) {
  const rows = iEnd - i, columns = jEnd - j, wide = columns + 1;
  if (rows * columns <= MOST_CELLS) {
    const best = new Int32Array((rows + 1) * wide);
    for (let x = rows - 1; x >= 0; x--)
      for (let y = columns - 1; y >= 0; y--)
        best[x * wide + y] = a[i + x] === b[j + y] ? best[(x + 1) * wide + y + 1] + 1
          : Math.max(best[(x + 1) * wide + y], best[x * wide + y + 1]);
    let x = 0, y = 0;
    while (x < rows && y < columns) {
      if (a[i + x] === b[j + y]) out.push([" ", i + x++, j + y++]);
      else if (best[(x + 1) * wide + y] >= best[x * wide + y + 1]) out.push(["-", i + x++, j + y]);
      else out.push(["+", i + x, j + y++]);
    }
    i += x; j += y;
  }
  while (i < iEnd) out.push(["-", i++, j]);
  while (j < jEnd) out.push(["+", i, j++]);
}

// Rows of a difference: a changed line directly below its former self, if both define one value.
function interleaved(a, b, value) {
  const rows = [], steps = difference(a, b);
  for (let n = 0; n < steps.length;) {
    if (steps[n][0] === " ") { rows.push({sign: " ", line: b[steps[n][2]], i: steps[n][1], j: steps[n][2]}); n++; continue; }
    const removed = [], added = [];
    for (; n < steps.length && steps[n][0] !== " "; n++) (steps[n][0] === "-" ? removed : added).push(steps[n]);
    const where = new Map(added.map((s, k) => [value(b[s[2]]), k]));
    let done = 0;
    for (const [, i] of removed) {
      const row = {sign: "-", line: a[i], i}, at = value(a[i]) ? where.get(value(a[i])) : undefined;
      if (at === undefined || at < done) { rows.push(row); continue; }
      for (; done < at; done++) rows.push({sign: "+", line: b[added[done][2]], j: added[done][2]});
      row.other = b[added[at][2]];
      rows.push(row, {sign: "+", line: row.other, j: added[at][2], other: a[i]});
      done = at + 1;
    }
    for (; done < added.length; done++) rows.push({sign: "+", line: b[added[done][2]], j: added[done][2]});
  }
  return rows;
}

// The words of a text, and for each whether the other text lacks it there.
function changedWords(text, other) {
  const split = s => s.match(/%\d+|\w+|\s+|[^\w\s]/g) ?? [];
  const words = split(text), fresh = words.map(() => true);
  for (const [sign, i] of difference(words, split(other))) if (sign === " ") fresh[i] = false;
  return words.map((word, n) => [word, fresh[n]]);
}
