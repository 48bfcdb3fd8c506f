import "@mantine/core/styles/Notification.css";
import "@mantine/notifications/styles.css";
import { Notifications } from "@mantine/notifications";

export function NotificationList() {
  return <Notifications position="bottom-right" limit={4} />;
}
