import { createTheme, type MantineColorsTuple } from "@mantine/core";

const tea: MantineColorsTuple = [
  "#e6f6f3", "#cfeae5", "#a1d6cd", "#6fc0b3", "#48ad9e", "#2f9f8f", "#1b8f80", "#0b7a6c", "#0b6b61", "#045149",
];

const graphite: MantineColorsTuple = [
  "#d5dad8", "#b4bbb9", "#929b98", "#717b78", "#4a5250", "#343b39", "#232928", "#1a1f1e", "#141817", "#0f1211",
];

/** The library's red, with shades 7 and 8 darker: white text on a button of either theme has 4.5:1. */
const red: MantineColorsTuple = [
  "#fff5f5", "#ffe3e3", "#ffc9c9", "#ffa8a8", "#ff8787", "#ff6b6b", "#fa5252", "#d32f2f", "#c92a2a", "#b32424",
];

/** Small type and tight spacing, so that a monitoring page needs little scrolling. */
export const theme = createTheme({
  colors: { tea, red, dark: graphite },
  primaryColor: "tea",
  primaryShade: { light: 8, dark: 7 },
  fontFamily: "'Inter Variable', system-ui, sans-serif",
  fontFamilyMonospace: "'JetBrains Mono Variable', ui-monospace, monospace",
  headings: { fontFamily: "'Inter Variable', system-ui, sans-serif", fontWeight: "620" },
  fontSizes: { xs: "0.75rem", sm: "0.8125rem", md: "0.875rem", lg: "1rem", xl: "1.15rem" },
  spacing: { xs: "0.5rem", sm: "0.7rem", md: "1rem", lg: "1.4rem", xl: "2rem" },
  radius: { xs: "3px", sm: "5px", md: "7px", lg: "10px" },
  defaultRadius: "sm",
  cursorType: "pointer",
  components: {
    Button: { defaultProps: { size: "xs" } },
    // The library's own sizes of the small inputs are 10 px.
    InputWrapper: {
      vars: () => ({ label: {}, description: { "--input-description-size": "var(--mantine-font-size-xs)" }, error: { "--input-error-size": "var(--mantine-font-size-xs)" } }),
    },
    TextInput: { defaultProps: { size: "xs" } },
    PasswordInput: { defaultProps: { size: "sm" } },
    NumberInput: { defaultProps: { size: "xs" } },
    Select: { defaultProps: { size: "xs" } },
    Textarea: { defaultProps: { size: "xs" } },
    Switch: { defaultProps: { size: "xs" } },
    SegmentedControl: { defaultProps: { size: "xs" } },
    Tooltip: { defaultProps: { withArrow: true, multiline: true, maw: 320, openDelay: 250, fz: "xs" } },
    Table: { defaultProps: { verticalSpacing: 6, horizontalSpacing: "sm", fz: "sm" } },
    Modal: { defaultProps: { centered: true, size: "md", closeButtonProps: { "aria-label": "Close" } } },
  },
});
