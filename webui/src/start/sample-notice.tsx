import { Button } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";

import * as queries from "../api/queries.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { SAMPLE, type Available } from "./origins.ts";
import classes from "./start-page.module.css";

/** What the demo still needs in this project, and the way to it. */
export default function SampleNotice({ available: { datasets, models } }: { available: Available }) {
  const client = useQueryClient();
  const [progress, setProgress] = useState("");
  const create = useMutation({
    mutationFn: async () => (await import("../home/store-sample-dataset.ts")).storeSampleDataset(setProgress),
    onSettled: () => client.invalidateQueries({ queryKey: queries.datasets.queryKey }),
  });
  const hasSample = datasets.includes(SAMPLE);
  return (
    <div className={classes.notice} role="note" data-testid="demo-needs">
      {!hasSample && (
        <p>
          The demo needs the sample dataset: digits to add, with worked solutions.{" "}
          <Button size="compact-xs" loading={create.isPending} onClick={() => create.mutate()} data-testid="sample-dataset">Create the sample</Button> {create.isPending && <span role="status">{progress}</span>}
        </p>
      )}
      {models.length === 0 && <p>It also needs a base model: <code>oolong quickstart</code> uploads a tiny one, or <Link to="/models">register one</Link>.</p>}
      <ProblemNotice error={create.error} />
    </div>
  );
}
