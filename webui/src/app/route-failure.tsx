import { Button } from "@mantine/core";
import { Link, useRouteError } from "react-router";

import { Empty } from "../common/notices.tsx";

/** An unknown URL, or a page whose code failed to load or to run. */
export function RouteFailure({ missing = false }: { missing?: boolean }) {
  const error = useRouteError();
  if (missing) {
    return (
      <Empty title="Page not found" action={<Button component={Link} to="/runs" variant="default">Go to runs</Button>}>
        The page may have moved, or the link may be incomplete.
      </Empty>
    );
  }
  return (
    <Empty title="This page failed to load" action={<Button onClick={() => window.location.reload()}>Reload</Button>}>
      {error instanceof Error ? error.message : String(error)}. If the server was updated, reload the page.
    </Empty>
  );
}
