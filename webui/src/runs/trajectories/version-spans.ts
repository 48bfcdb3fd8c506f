/** Used as the policy version of tokens that the environment wrote. They are not trained. */
export const ENVIRONMENT = -1;

export type Span = { version: number; tokens: number; text: string };

export type Sample = { completion: string; policy_versions: number[]; version_texts?: string[] | null };

/** How many policy versions sampled the trajectory. */
export function versionsOf(sample: Pick<Sample, "policy_versions">): number {
  const versions = sample.policy_versions.filter((version, index) => index % 2 === 0 && version !== ENVIRONMENT);
  return new Set(versions).size;
}

/**
 * Split a completion where the policy version changes, and between policy and environment. The writer sends the text of
 * each span. If it did not, the text is split in proportion to the tokens, and `isExact` is false.
 */
export function spansOf(sample: Sample): { spans: Span[]; isExact: boolean } {
  const runs: { version: number; tokens: number }[] = [];
  for (let index = 0; index + 1 < sample.policy_versions.length; index += 2) {
    runs.push({ version: sample.policy_versions[index]!, tokens: sample.policy_versions[index + 1]! });
  }
  if (runs.length === 0) return { spans: [{ version: 0, tokens: 0, text: sample.completion }], isExact: false };
  const texts = sample.version_texts ?? [];
  if (texts.length === runs.length) {
    return { spans: runs.map((run, index) => ({ ...run, text: texts[index]! })), isExact: true };
  }
  const total = runs.reduce((sum, run) => sum + run.tokens, 0) || 1;
  const characters = [...sample.completion];
  let tokens = 0;
  let from = 0;
  const spans = runs.map((run) => {
    tokens += run.tokens;
    const to = Math.round((characters.length * tokens) / total);
    const text = characters.slice(from, to).join("");
    from = to;
    return { ...run, text };
  });
  return { spans, isExact: runs.length === 1 };
}

/** "v12" or "v12 to v14": the oldest and the newest policy version of a trajectory. */
export function versionsText({ low_version: low, high_version: high }: { low_version: number | null; high_version: number | null }): string {
  if (low === null || high === null) return "";
  return low === high ? `v${low}` : `v${low} to v${high}`;
}
