// The data as model.py writes it; a test holds the two against each other. Below it, what the script makes of them.

type State = "broke" | "running" | "clean" | "ended" | "empty";
type MarkKind = "failed" | "died" | "clean" | "started";
type Unit = "ns" | "bytes" | "bytes_per_second" | "ratio" | "celsius" | "watts" | "hertz" | "";
type Words = string | Phrase;
type Argument = string | number | Phrase;

interface Phrase {
  key: string;
  args?: Record<string, Argument>;
}

interface Fact {
  label: Phrase;
  lines: Words[];
}

interface Command {
  why: Phrase;
  command: string;
}

interface Head {
  state: State;
  sentence: Words;
  confidence: Phrase | null;
  facts: Fact[];
  advice: Words[];
  commands: Command[];
}

interface Evidence {
  at_us: number;
  who: Words;
  text: Words;
  lane: number | null;
  row: number | null;
  effect: boolean;
}

interface PhaseName {
  name: string;
  words: Words;
}

interface Mark {
  at_us: number;
  kind: MarkKind;
  words: Words;
}

interface Lane {
  label: Words;
  node: string;
  ranks: (number | null)[];
  culprit: boolean;
  bad: boolean;
  start_us: number;
  end_us: number | null;
  notes: Words[];
  marks: Mark[];
  segments: number[];
  members: Lane[];
}

interface Series {
  times_us: number[];
  values: (number | null)[];
}

interface Band {
  times_us: number[];
  low: (number | null)[];
  middle: (number | null)[];
  high: (number | null)[];
}

interface Strip {
  label: Words;
  unit: Unit;
  who: Words;
  own: Series;
  /** Several other ranks together; of a single other rank its own curve is in `other`. */
  others: Band | null;
  other: Series | null;
  other_who: Words;
}

interface Speaker {
  words: Words;
  rank: number | null;
  node: string;
  culprit: boolean;
  lane: number | null;
}

interface Log {
  times_us: number[];
  speaker: number[];
  severity: number[];
  texts: Words[];
  events: number[];
  /** Rows that only followed from the culprit's end. */
  effects: number[];
  /** Rows of what the culprit said last, and how it ended. */
  last: number[];
  speakers: Speaker[];
  left_out: number;
}

interface Page {
  version: number;
  title: string;
  language: string;
  trace_id: string;
  incident_id: string | null;
  zero_ms: number;
  zero_is_onset: boolean;
  start_us: number;
  end_us: number;
  detected_us: number | null;
  follow: boolean;
  head: Head;
  evidence: Evidence[];
  phases: PhaseName[];
  lanes: Lane[];
  strips: Strip[];
  log: Log;
  missing: Words[];
}

// Columns decoded: absolute microseconds from the page's zero.

interface Track {
  lane: Lane;
  starts: Float64Array;
  ends: Float64Array;
  /** A place in `phases`, or -1 - place where the phase was never finished. */
  phases: Int16Array;
  /** Of each step its first phase. */
  begins: Int32Array;
  /** The median step, as far as it can be told. */
  rhythm_us: number;
}

interface Curve {
  times: Float64Array;
  values: Float64Array;
}

interface Envelope {
  times: Float64Array;
  low: Float64Array;
  middle: Float64Array;
  high: Float64Array;
}

interface Measured {
  strip: Strip;
  own: Curve;
  other: Curve | null;
  others: Envelope | null;
}

interface Lines {
  times: Float64Array;
  speaker: number[];
  severity: number[];
  texts: Words[];
  event: Uint8Array;
  /** What only followed from the culprit's end. */
  effect: Uint8Array;
  speakers: Speaker[];
  count: number;
}

interface Scene {
  page: Page;
  tracks: Track[];
  measured: Measured[];
  lines: Lines;
}

interface Stretch {
  from: number;
  to: number;
}

/** What of a kind was drawn: places in `phases`, whole and begun but never finished, and kinds of marks; the legend says what they mean. */
interface Drawn {
  phases: Set<number>;
  open: Set<number>;
  marks: Set<string>;
  begins: boolean;
  idle: boolean;
  shares: boolean;
}

/** One lane, member of a lane or caption of a node, as it is laid out. */
interface LaneRow {
  kind: "node" | "lane" | "member";
  top: number;
  height: number;
  /** So much of the height is the strip; below it is its note where there is no room beside it. */
  band: number;
  track: Track | null;
  /** The place of the lane in the page; for a member, of the lane it is in. */
  place: number;
  caption: string;
}
