import type { SourceKind } from "../api/schema.d.ts";
import loss from "./templates/loss.py?raw";
import reward from "./templates/reward.py?raw";
import workflow from "./templates/workflow.py?raw";

/** What the editor begins with. tests/unit/control_plane/assets/test_function_templates.py uploads them. */
export const TEMPLATES: Record<SourceKind, string> = { reward, workflow, loss };
