import { TRAJECTORY_PARAMETERS } from "./trajectories/trajectory-filter.ts";

/** What one tab keeps in the URL and another would misread: it is left out when the tab changes. */
export const TAB_PARAMETERS = [...TRAJECTORY_PARAMETERS, "job", "level", "find"];
