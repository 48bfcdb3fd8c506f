import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";

import { put } from "../api/http.ts";

/** Works in another project from now on. Opens a new page, so that nothing of the old project stays in caches or on the stream. */
export function useSwitchProject(): { choose: (project: string) => void; isPending: boolean } {
  const { mutate, isPending } = useMutation({
    mutationFn: (project: string) => put("/api/v1/session/project", { body: { project } }),
    onSuccess: () => window.location.assign("/"),
    onError: (error) => notifications.show({ color: "red", message: error.message }),
  });
  return { choose: mutate, isPending };
}
