import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";

import * as queries from "../api/queries.ts";
import type { Json } from "../common/json.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { withTemplate } from "./merge-patch.ts";
import classes from "./start-page.module.css";

/** The form, with the values of the template that the address names: `name@2`, or `name` for its newest version. */
export default function FromTemplate({ reference, children }: { reference: string; children: (fill: (spec: Json) => Json) => ReactNode }) {
  const { data, error, refetch } = useQuery(queries.templates);
  if (error !== null) return <ProblemNotice error={error} retry={() => void refetch()} />;
  if (data === undefined) return <Waiting label="Loading the template" />;
  const [name, number] = reference.split("@");
  const version = data.filter((template) => template.name === name).flatMap(({ ref, versions, spec }) => (number === undefined ? [{ ref, spec }] : versions.filter((one) => String(one.number) === number).map((one) => ({ ref: reference, spec: one.spec }))))[0];
  return (
    <>
      <p className={classes.notice} role="note" data-testid="template">
        {version === undefined ? <>This project and its team have no template <b>{reference}</b>. The form has the values of a preset.</> : <>The form has the values of the template <b>{version.ref}</b>; the rest comes from a preset.</>}
      </p>
      {children((spec) => (version === undefined ? spec : withTemplate(spec, version.spec as Json)))}
    </>
  );
}
