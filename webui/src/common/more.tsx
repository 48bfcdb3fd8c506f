import { Button } from "@mantine/core";

type Paged = { hasNextPage: boolean; isFetchingNextPage: boolean; fetchNextPage: () => unknown };

/** A button that fetches the next page of a list, if there is one. */
export function More({ query }: { query: Paged }) {
  if (!query.hasNextPage) return null;
  return (
    <div style={{ padding: 10, textAlign: "center" }}>
      <Button variant="default" loading={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>Show more</Button>
    </div>
  );
}
