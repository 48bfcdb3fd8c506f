import { Button } from "@mantine/core";
import { Link, useRouteError } from "react-router";

import { Empty } from "../common/notices.tsx";

/** An address that leads nowhere, or a page whose code could not be fetched or failed. */
export function RouteFailure({ missing = false }: { missing?: boolean }) {
  const error = useRouteError();
  if (missing) {
    return (
      <Empty title="There is no page at this address" action={<Button component={Link} to="/runs" variant="default">To the runs</Button>}>
        It may have been moved, or the link was cut short.
      </Empty>
    );
  }
  return (
    <Empty title="This page failed" action={<Button onClick={() => window.location.reload()}>Load it again</Button>}>
      {error instanceof Error ? error.message : String(error)}. If the server was updated meanwhile, loading the page again is all it needs.
    </Empty>
  );
}
