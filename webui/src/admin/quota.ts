import type { ProjectQuota, Quota } from "../api/schema.d.ts";

/** A number field of a form: empty, or a whole number. */
export type Amount = number | string;
export type QuotaForm = { nominal: Amount; limit: Amount; lending: Amount };

export const formOf = (quota: Quota | ProjectQuota): QuotaForm => ({
  nominal: quota.nominal_slots, limit: quota.limit_slots ?? "", lending: ("lending_limit" in quota ? quota.lending_limit : null) ?? "",
});

const orNull = (amount: Amount): number | null => (amount === "" ? null : Number(amount));

export const teamBody = ({ nominal, limit, lending }: QuotaForm) => ({ nominal_slots: orNull(nominal) ?? 0, limit_slots: orNull(limit), lending_limit: orNull(lending) });

export const projectBody = ({ nominal, limit }: QuotaForm) => ({ nominal_slots: orNull(nominal) ?? 0, limit_slots: orNull(limit) });

/** What a form means, in one sentence, for the team or project. */
export function quotaMeaning(name: string, form: QuotaForm, withLending: boolean): string {
  const { nominal_slots: nominal, limit_slots: limit, lending_limit: lending } = teamBody(form);
  const own = nominal === 0 ? `${name} has no slots of its own` : `${name} always gets ${slots(nominal)}`;
  const most = limit === null ? "as many idle ones as there are" : limit === 0 ? "starts nothing, because the limit is 0" : `holds at most ${slots(limit)}, borrowed ones included`;
  const lends = !withLending || nominal === 0 ? "" : lending === null ? " Others borrow all of its idle slots." : lending === 0 ? " Others borrow none of them." : ` Others borrow at most ${slots(lending)} of them.`;
  return `${own}, ${limit === null ? `and borrows ${most}` : `and ${most}`}.${lends}`;
}

const slots = (count: number): string => `${count} slot${count === 1 ? "" : "s"}`;

/** Why a form cannot be saved, said at the limit. The API says the rest. */
export function limitError(form: QuotaForm): string | undefined {
  const { nominal_slots: nominal, limit_slots: limit } = teamBody(form);
  return limit !== null && limit < nominal ? `Below the nominal ${slots(nominal)}. Raise it, or lower the nominal quota.` : undefined;
}
