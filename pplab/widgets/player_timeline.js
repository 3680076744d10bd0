// What the player knows of a timeline, and how it words it. Stands before player.js.

/** A timeline as Python sent it; times count from its start. */
class Timeline {
  constructor(item) {
    this.name = item.name;
    this.frame = item.frame;
    const { timeline, given_back_by, gaps } = JSON.parse(item.columns);
    this.stored = timeline;
    const origin = timeline.start.reduce((a, b) => Math.min(a, b));
    this.ops = [];
    this.rows = timeline.rows.map((row, device) => row.split(" ").map((text) => this.#op(text, device, origin)));
    this.ops.forEach((op, i) => (op.until = given_back_by[i] < 0 ? op.start : this.ops[given_back_by[i]].end));
    this.manyStages = this.rows.some((row) => row.some((op) => op.stage !== row[0].stage));
    const named = new Map(this.ops.map((op) => [op.text, op]));
    timeline.pairs.forEach((pair) => pair.forEach((text, half) => (named.get(text).half = half)));
    this.gaps = this.rows.map(() => []);
    gaps.device.forEach((device, i) => {
      const awaited = gaps.waiting_for[i];
      const gap = { start: gaps.start[i] - origin, end: gaps.end[i] - origin, parts: [] };
      gap.waitingFor = awaited < 0 ? null : this.ops[awaited].text;
      gap.device = device;
      this.gaps[device].push(gap);
    });
    const flat = this.gaps.flat(); // the gaps come device by device
    gaps.parts.forEach(([gap, reason, time]) => flat[gap].parts.push([reason, time]));
    this.length = this.ops.reduce((most, op) => Math.max(most, op.end), 0);
  }

  #op(text, device, origin) {
    const [, stage, kind, microbatch] = /^(\d+)([FBIW])(\d+)$/.exec(text);
    const [start, end] = [this.stored.start, this.stored.end].map((column) => column[this.ops.length] - origin);
    const op = { text, device, start, end, stage: Number(stage), kind, microbatch: Number(microbatch) };
    this.ops.push(op);
    return op;
  }

  /** What a device does, holds and waits for: ops (two of a pair), ops that took what it holds, a gap or undefined. */
  at(device, time) {
    const x = time + 1e-9 * this.length; // what ends now has ended, what starts now has started
    const runs = (span) => span.start <= x && x < span.end;
    const holds = this.rows[device].filter((op) => op.start <= x && x < op.until);
    return { does: this.rows[device].filter(runs), holds, gap: this.gaps[device].find(runs) };
  }

  /** The rows as PyTorch's CSV, a line a device. */
  csv() {
    const second = new Map(this.stored.pairs); // of a pair, by its first op
    const ends = new Set(second.values());
    const cell = (text) => (second.has(text) ? `(${text};${second.get(text)})OVERLAP_F_B` : text);
    const line = (row) => row.split(" ").filter((text) => !ends.has(text)).map(cell).join(",");
    return this.stored.rows.map((row) => `${line(row)}\n`).join("");
  }
}

const short = (x) => String(Number(x.toPrecision(6)));
const brief = (x) => String(x < 1000 ? Number(x.toPrecision(4)) : Math.round(x));
const least = (a, b) => a - b;

/** What an op is, in a sentence. */
function opText(op, kinds) {
  const what = `${op.text}: ${kinds[op.kind]} of micro-batch ${op.microbatch} on stage ${op.stage}`;
  return `${what}, ${short(op.start)} to ${short(op.end)}`;
}

/** Why a device waits: the reasons with their times, the largest first. */
function reasonText(gap, reasons) {
  const parts = [...gap.parts].sort((a, b) => b[1] - a[1]);
  return parts.map(([reason, time]) => `${reasons[reason]} ${brief(time)}`).join(" + ");
}

/** What a gap is, in a sentence. */
function gapText(gap, reasons) {
  const awaited = gap.waitingFor ? `, waits for ${gap.waitingFor}` : "";
  return `device ${gap.device} idle, ${short(gap.start)} to ${short(gap.end)}${awaited}: ${reasonText(gap, reasons)}`;
}

/** Whole numbers in ascending order, runs of them shortened: 0–3, 7. */
function runs(numbers) {
  const starts = numbers.filter((x) => !numbers.includes(x - 1));
  const ends = numbers.filter((x) => !numbers.includes(x + 1));
  return starts.map((x, i) => (x === ends[i] ? `${x}` : `${x}–${ends[i]}`)).join(", ");
}

/** How many micro-batches a device holds and which; where it has several stages, which forwards: 0F1–3. */
function holdsText(ops, manyStages) {
  const stages = [...new Set(ops.map((op) => op.stage))].sort(least);
  const of = (stage) => ops.filter((op) => op.stage === stage).map((op) => op.microbatch);
  const named = (stage) => runs(of(stage).sort(least)).replace(/^|(?<= )/g, manyStages ? `${stage}F` : "");
  const which = stages.map(named).join(", ");
  return which ? `${ops.length}: ${which}` : "0";
}
