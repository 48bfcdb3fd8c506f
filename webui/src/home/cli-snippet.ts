type Values = { origin: string; team: string; project: string; newestRun?: { id: string; name: string } };

/** Commands to paste, with the address and the names of the project. */
export function cliSnippet({ origin, team, project, newestRun }: Values): string {
  return [
    "# once: the command of this server",
    "python3 -m venv ~/oolong-client",
    `~/oolong-client/bin/pip install --requirement ${origin}/api/v1/client/requirements.txt`,
    'export PATH="$HOME/oolong-client/bin:$PATH"',
    `export OOLONG_URL=${origin}`,
    `export OOLONG_TOKEN=…   # of ${team} / ${project}, from the page Account`,
    "",
    ...(newestRun === undefined
      ? ["# a sample dataset, base model and reward, and a warm start", "oolong quickstart ~/letters", "cd ~/letters", "oolong run create -f run.yaml"]
      : ["oolong run list", `oolong run watch ${newestRun.id}   # ${newestRun.name}`, "oolong run create -f run.yaml"]),
  ].join("\n");
}
