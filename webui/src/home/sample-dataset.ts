/**
 * The sample dataset: digits to add, with worked solutions, as in platform/oolong/samples/demo_dataset.py.
 * A question lists digits tagged by letters, `a5 b7 c9`; the solution is their running sum and a box:
 * `a5=5 b7=12 c9=21 \boxed{21}`. The demonstrations of the split `sft` contain errors that RL can remove.
 */

export const SAMPLE_NAME = "letter-sum";

export const SAMPLE_MAPPING = {
  prompt_column: "question", answer_column: "answer", completion_column: "solution", split_column: "split", source_column: null,
  default_split: "train", template: "{question}", system: "",
};

export type SampleRow = { question: string; answer: string; solution: string; split: string };

const SMALLEST_COUNT = 3;
const LARGEST_COUNT = 12;
const CONTINUE_PROBABILITY = 0.7;
const NOISE = 0.12; // chance that a running sum of a demonstration is wrong
const ROWS = { sft: 20_000, validation: 256, train: 4_000, eval: 512 };
/** Hundredths of all possible questions that belong to a split, so that no question is in two. */
const SHARES = { sft: 50, validation: 10, train: 25, eval: 15 };

type Split = keyof typeof ROWS;

/** The rows, split by split. The same seed gives the same rows. Only `sft` may repeat a question. */
export function sampleRows(seed = 1, wanted: Record<Split, number> = ROWS): SampleRow[] {
  const random = generator(seed);
  return (Object.keys(wanted) as Split[]).flatMap((split) => {
    const rows: SampleRow[] = [];
    const seen = new Set<string>();
    while (rows.length < wanted[split]) {
      const digits = randomDigits(random);
      const question = digits.map((digit, index) => `${letter(index)}${digit}`).join(" ");
      if (splitOf(question) !== split || (split !== "sft" && seen.has(question))) continue;
      seen.add(question);
      rows.push({ question, answer: String(digits.reduce((sum, digit) => sum + digit, 0)), solution: solution(digits, split === "sft" ? NOISE : 0, random), split });
    }
    return rows;
  });
}

export function asJsonLines(rows: SampleRow[]): string {
  return rows.map((row) => `${JSON.stringify(row)}\n`).join("");
}

/** The split of a question follows from its text alone. */
export function splitOf(question: string): Split {
  let draw = fnv1a(question) % 100;
  for (const [split, share] of Object.entries(SHARES) as [Split, number][]) {
    if (draw < share) return split;
    draw -= share;
  }
  throw new Error("the shares do not add up to 100");
}

function randomDigits(random: () => number): number[] {
  let count = SMALLEST_COUNT;
  while (count < LARGEST_COUNT && random() < CONTINUE_PROBABILITY) count += 1;
  return Array.from({ length: count }, () => Math.floor(random() * 10));
}

/** The worked solution. Each running sum is off by 1 to 3 with the probability `noise`, and continues from there. */
function solution(digits: number[], noise: number, random: () => number): string {
  let total = 0;
  const steps = digits.map((digit, index) => {
    total += digit;
    if (noise > 0 && random() < noise) total = Math.max(0, total + (random() < 0.5 ? -1 : 1) * (1 + Math.floor(random() * 3)));
    return `${letter(index)}${digit}=${total}`;
  });
  return `${steps.join(" ")} \\boxed{${total}}`;
}

function letter(index: number): string {
  return String.fromCharCode(97 + index);
}

/** 32-bit FNV-1a of ASCII text. */
function fnv1a(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  return hash >>> 0;
}

/** mulberry32: numbers from 0 to 1 that a seed determines. */
function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
