import { useNotifications } from "@mantine/notifications";
import { lazy, Suspense, useEffect, useState } from "react";

const NotificationList = lazy(async () => ({ default: (await import("./notification-list.tsx")).NotificationList }));

/** Where notifications appear. Its code is loaded with the first of them. */
export function NotificationArea() {
  const { notifications } = useNotifications();
  const [needed, setNeeded] = useState(false);
  useEffect(() => { if (notifications.length > 0) setNeeded(true); }, [notifications.length]);
  return needed && <Suspense><NotificationList /></Suspense>;
}
