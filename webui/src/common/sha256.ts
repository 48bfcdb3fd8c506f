/** SHA-256 in hexadecimal. Browsers provide it only on https and localhost; elsewhere this module computes it. */
export async function sha256(data: ArrayBuffer): Promise<string> {
  const digest = globalThis.crypto?.subtle === undefined ? softwareSha256(new Uint8Array(data)) : new Uint8Array(await crypto.subtle.digest("SHA-256", data));
  return hex(digest);
}

const primes = (count: number): number[] => {
  const found: number[] = [];
  for (let n = 2; found.length < count; n++) if (found.every((prime) => n % prime !== 0)) found.push(n);
  return found;
};
const fraction = (x: number): number => ((x - Math.floor(x)) * 2 ** 32) | 0;
const INITIAL_STATE = primes(8).map((prime) => fraction(Math.sqrt(prime)));
const ROUND_CONSTANTS = primes(64).map((prime) => fraction(Math.cbrt(prime)));
const rotateRight = (x: number, by: number): number => (x >>> by) | (x << (32 - by));

/** FIPS 180-4, section 6.2. */
export function softwareSha256(data: Uint8Array): Uint8Array {
  const padded = new Uint8Array(((data.length + 8) >> 6 << 6) + 64);
  padded.set(data);
  padded[data.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 8, Math.floor(data.length / 2 ** 29));
  view.setUint32(padded.length - 4, data.length << 3);
  const state = Int32Array.from(INITIAL_STATE);
  const w = new Int32Array(64);
  for (let block = 0; block < padded.length; block += 64) {
    for (let t = 0; t < 16; t++) w[t] = view.getInt32(block + 4 * t);
    for (let t = 16; t < 64; t++) {
      const early = w[t - 15]!, late = w[t - 2]!;
      w[t] = w[t - 16]! + (rotateRight(early, 7) ^ rotateRight(early, 18) ^ (early >>> 3)) + w[t - 7]! + (rotateRight(late, 17) ^ rotateRight(late, 19) ^ (late >>> 10));
    }
    let [a, b, c, d, e, f, g, h] = state as unknown as [number, number, number, number, number, number, number, number];
    for (let t = 0; t < 64; t++) {
      const first = (h + (rotateRight(e, 6) ^ rotateRight(e, 11) ^ rotateRight(e, 25)) + ((e & f) ^ (~e & g)) + ROUND_CONSTANTS[t]! + w[t]!) | 0;
      const second = ((rotateRight(a, 2) ^ rotateRight(a, 13) ^ rotateRight(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [a, b, c, d, e, f, g, h] = [(first + second) | 0, a, b, c, (d + first) | 0, e, f, g];
    }
    [a, b, c, d, e, f, g, h].forEach((value, n) => { state[n] = state[n]! + value; });
  }
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((value, n) => digest.setInt32(4 * n, value));
  return new Uint8Array(digest.buffer);
}

const hex = (bytes: Uint8Array): string => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
