//! A timeline of a call: one band per stage, one bar per piece of work, and the best possible time of each stage.

use std::fmt::Write;

use crate::run::{Report, Span, Stage};

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 20.0;
const LANE_HEIGHT: f64 = 7.0;
const GAP: f64 = 12.0;
const TOP: f64 = 44.0;
/// Maximum number of lanes in a band. If there are more threads, they share lanes.
const MOST_LANES: usize = 24;
/// Maximum number of bars in a picture. If there are more, only every n-th is drawn.
const MOST_BARS: usize = 20_000;
/// Height of the line above a stage's bars that shows the best time that the machine allows.
const CEILING_HEIGHT: f64 = 3.0;
const CEILING_COLOUR: [u8; 3] = [0x22, 0x22, 0x22];

/// A shape in the picture. Positions and sizes are in pixels from the upper left corner.
#[derive(Clone, Debug, PartialEq)]
pub enum Mark {
    /// A filled box with a tooltip.
    Bar {
        /// Left, upper edge, width, height.
        place: [f64; 4],
        /// Red, green, blue.
        colour: [u8; 3],
        /// The tooltip.
        title: String,
    },
    /// A thin vertical line.
    Line {
        /// Distance from the left edge.
        x: f64,
        /// Upper and lower end.
        y: [f64; 2],
    },
    /// A line of text.
    Text {
        /// Left end, and baseline.
        place: [f64; 2],
        /// Height of the letters.
        size: u32,
        /// The text.
        content: String,
    },
}

/// A timeline of a call, as a picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Gantt {
    /// Width in pixels.
    pub width: f64,
    /// Height in pixels.
    pub height: f64,
    /// The shapes, in drawing order.
    pub marks: Vec<Mark>,
}

fn colour(stage: Stage) -> [u8; 3] {
    match stage {
        Stage::Fetch | Stage::Flush => [0x4c, 0x78, 0xa8],
        Stage::Decode | Stage::Encode => [0xf5, 0x85, 0x18],
        Stage::Upload | Stage::Download => [0x54, 0xa2, 0x4b],
        Stage::Scatter | Stage::Gather => [0xb2, 0x79, 0xa2],
        Stage::Fill => [0x9d, 0x75, 0x5d],
    }
}

impl Gantt {
    /// Draws the report of a traced call. `notes` appear under the title. `ceilings` is the roofline of the call: for
    /// each stage, the seconds that it would take at best, without other stages.
    pub fn new(report: &Report, title: &str, notes: &[String], ceilings: &[(Stage, f64)]) -> Gantt {
        let spans_ns = report.spans.iter().map(|span| span.end_ns as f64);
        let total_ns = spans_ns.chain(ceilings.iter().map(|(_, seconds)| seconds * 1e9)).fold(1.0, f64::max);
        let scale = (WIDTH - LEFT - RIGHT) / total_ns;
        let mut picture = Gantt { width: WIDTH, height: 0.0, marks: Vec::new() };
        let mut top = TOP + 14.0 * notes.len() as f64;
        picture.text(6.0, 18.0, 14, title);
        for (line, note) in notes.iter().enumerate() {
            picture.text(6.0, 34.0 + 14.0 * line as f64, 11, note);
        }
        let axis_at = picture.marks.len();
        let every = report.spans.len().div_ceil(MOST_BARS).max(1);
        for (stage, did) in report.stages() {
            let spans: Vec<Span> =
                report.spans.iter().filter(|span| span.stage == stage).step_by(every).copied().collect();
            let busy = 100.0 * did.busy_seconds / report.wall_seconds.max(f64::MIN_POSITIVE);
            picture.text(6.0, top + 9.0, 11, stage.name());
            let rate = did.size_bytes as f64 / did.busy_seconds.max(f64::MIN_POSITIVE) / 1e9;
            picture.text(6.0, top + 20.0, 9, &format!("{rate:.1} GB/s"));
            picture.text(6.0, top + 30.0, 9, &format!("busy {busy:.0} %"));
            let ceiling = ceilings.iter().find(|(ceiling, _)| *ceiling == stage);
            if let Some((_, seconds)) = ceiling {
                let place = [LEFT, top - CEILING_HEIGHT - 2.0, (seconds * 1e9 * scale).max(1.0), CEILING_HEIGHT];
                let title = format!("{} at best: {:.2} ms", stage.name(), seconds * 1e3);
                picture.marks.push(Mark::Bar { place, colour: CEILING_COLOUR, title });
            }
            let lanes = lanes(&spans);
            let height = lanes.iter().max().map_or(1, |most| most + 1) as f64 * LANE_HEIGHT;
            for (span, lane) in spans.iter().zip(lanes) {
                let (x, y) = (LEFT + span.start_ns as f64 * scale, top + lane as f64 * LANE_HEIGHT);
                let width = ((span.end_ns - span.start_ns) as f64 * scale).max(0.3);
                let micros = (span.end_ns - span.start_ns) as f64 / 1e3;
                let title = format!("{} {} bytes, {micros:.1} µs", stage.name(), span.size_bytes);
                let place = [x, y, width, LANE_HEIGHT - 1.0];
                picture.marks.push(Mark::Bar { place, colour: colour(stage), title });
            }
            top += height.max(34.0) + GAP;
        }
        // Lines are moved behind the bars.
        let bars = picture.marks.split_off(axis_at);
        picture.axis(top, total_ns, scale);
        picture.marks.extend(bars);
        picture.height = top + 24.0;
        picture
    }

    /// The picture as SVG.
    pub fn to_svg(&self) -> String {
        let (width, height) = (self.width, self.height);
        let mut svg = format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif">"#
        );
        svg.push_str("\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
        for mark in &self.marks {
            // Writing to a string does not fail.
            let _ = match mark {
                Mark::Bar { place: [x, y, width, height], colour: [r, g, b], title } => writeln!(
                    svg,
                    r##"<rect x="{x:.2}" y="{y:.1}" width="{width:.2}" height="{height:.1}" fill="#{r:02x}{g:02x}{b:02x}"><title>{}</title></rect>"##,
                    escaped(title)
                ),
                Mark::Line { x, y: [from, to] } => {
                    writeln!(svg, r##"<line x1="{x:.1}" y1="{from:.1}" x2="{x:.1}" y2="{to:.1}" stroke="#ddd"/>"##)
                }
                Mark::Text { place: [x, y], size, content } => {
                    writeln!(svg, r#"<text x="{x:.1}" y="{y:.1}" font-size="{size}">{}</text>"#, escaped(content))
                }
            };
        }
        svg + "</svg>\n"
    }

    /// Draws the time axis, with labels at round times.
    fn axis(&mut self, top: f64, total_ns: f64, scale: f64) {
        let mut step = 10f64.powf((total_ns / 8.0).log10().floor());
        while total_ns / step > 12.0 {
            step *= if total_ns / step > 24.0 { 5.0 } else { 2.0 };
        }
        let mut at = 0.0;
        while at <= total_ns {
            let x = LEFT + at * scale;
            self.marks.push(Mark::Line { x, y: [TOP, top] });
            self.text(x, top + 14.0, 9, &format!("{:.2} ms", at / 1e6));
            at += step;
        }
    }

    fn text(&mut self, x: f64, y: f64, size: u32, content: &str) {
        self.marks.push(Mark::Text { place: [x, y], size, content: content.to_string() });
    }
}

fn escaped(content: &str) -> String {
    content.replace('&', "&amp;").replace('<', "&lt;")
}

/// The lane of each span: the first lane that is free when the span starts.
fn lanes(spans: &[Span]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by_key(|&at| (spans[at].start_ns, spans[at].end_ns));
    let (mut free_at, mut lanes) = (Vec::<u64>::new(), vec![0; spans.len()]);
    for at in order {
        let free = free_at.iter().position(|&free| free <= spans[at].start_ns);
        let lane = match free {
            Some(lane) => lane,
            None if free_at.len() < MOST_LANES => {
                free_at.push(0);
                free_at.len() - 1
            }
            None => at % MOST_LANES,
        };
        free_at[lane] = free_at[lane].max(spans[at].end_ns);
        lanes[at] = lane;
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start_ns: u64, end_ns: u64) -> Span {
        Span { stage: Stage::Fetch, start_ns, end_ns, size_bytes: 1 }
    }

    fn bars(picture: &Gantt) -> Vec<[f64; 4]> {
        let bar = |mark: &Mark| if let Mark::Bar { place, .. } = mark { Some(*place) } else { None };
        picture.marks.iter().filter_map(bar).collect()
    }

    #[test]
    fn work_at_the_same_time_lies_in_lanes_of_its_own() {
        assert_eq!(lanes(&[span(0, 10), span(5, 8), span(8, 20), span(10, 12)]), [0, 1, 1, 0]);
        assert!(lanes(&vec![span(0, 10); 100]).iter().all(|&lane| lane < MOST_LANES));
    }

    #[test]
    fn a_picture_has_a_bar_for_each_piece_of_work() {
        assert!(bars(&Gantt::new(&Report::default(), "nothing", &[], &[])).is_empty());
        let report = Report::of(&[span(0, 400), span(500, 1000)]);
        let picture = Gantt::new(&report, "a < b", &["at best & more".into()], &[]);
        assert_eq!(bars(&picture).len(), 2);
        let svg = picture.to_svg();
        assert_eq!(svg.matches("<rect x").count(), 2);
        assert!(svg.contains("a &lt; b") && svg.contains("at best &amp; more") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn what_a_stage_would_take_at_best_is_drawn_at_the_scale_of_its_work() {
        let report = Report::of(&[span(0, 1000)]);
        let picture = Gantt::new(&report, "", &[], &[(Stage::Fetch, 500e-9), (Stage::Decode, 250e-9)]);
        let [ceiling, work] = bars(&picture)[..] else { panic!("{picture:?}") };
        assert!((ceiling[2] * 2.0 - work[2]).abs() < 1e-6 && ceiling[1] < work[1], "half the work's time, above it");
        // A stage that did nothing is not drawn.
        assert!(picture.to_svg().contains("<title>fetch at best: 0.00 ms</title>"));
    }
}
