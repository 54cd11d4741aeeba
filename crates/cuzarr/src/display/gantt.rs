//! A picture of a call: one band a stage, one bar for each piece of work, time from left to right.

use std::fmt::Write;

use crate::run::{Report, Span, Stage};

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 20.0;
const LANE_HEIGHT: f64 = 7.0;
const GAP: f64 = 12.0;
const TOP: f64 = 44.0;
/// Bars of a band beside each other; more threads than that share lanes.
const MOST_LANES: usize = 24;
/// Bars of a picture: of more, every so many are drawn.
const MOST_BARS: usize = 20_000;

fn color(stage: Stage) -> &'static str {
    match stage {
        Stage::Fetch | Stage::Flush => "#4c78a8",
        Stage::Decode | Stage::Encode => "#f58518",
        Stage::Upload | Stage::Download => "#54a24b",
        Stage::Scatter | Stage::Gather => "#b279a2",
        Stage::Fill => "#9d755d",
    }
}

/// The report of a traced call as SVG. Under the title stand `notes`, such as what the machine could do at best.
pub fn gantt(report: &Report, title: &str, notes: &[String]) -> String {
    let total_ns = report.spans.iter().map(|span| span.end_ns).max().unwrap_or(1).max(1) as f64;
    let scale = (WIDTH - LEFT - RIGHT) / total_ns;
    let (mut top, mut bands) = (TOP + 14.0 * notes.len() as f64, String::new());
    let every = report.spans.len().div_ceil(MOST_BARS).max(1);
    for (stage, did) in report.stages() {
        let spans: Vec<Span> = report.spans.iter().filter(|span| span.stage == stage).step_by(every).copied().collect();
        let lanes = lanes(&spans);
        let count = lanes.iter().max().map_or(1, |most| most + 1);
        let height = count as f64 * LANE_HEIGHT;
        let busy = 100.0 * did.busy_seconds / report.wall_seconds.max(f64::MIN_POSITIVE);
        text(&mut bands, 6.0, top + 9.0, 11, stage.name());
        let rate = did.size_bytes as f64 / did.busy_seconds.max(f64::MIN_POSITIVE) / 1e9;
        text(&mut bands, 6.0, top + 20.0, 9, &format!("{rate:.1} GB/s"));
        text(&mut bands, 6.0, top + 30.0, 9, &format!("busy {busy:.0} %"));
        for (span, lane) in spans.iter().zip(lanes) {
            let (x, y) = (LEFT + span.start_ns as f64 * scale, top + lane as f64 * LANE_HEIGHT);
            let width = ((span.end_ns - span.start_ns) as f64 * scale).max(0.3);
            // Writing to a string does not fail.
            let _ = writeln!(
                bands,
                r#"<rect x="{x:.2}" y="{y:.1}" width="{width:.2}" height="{:.1}" fill="{}"><title>{} {} bytes, {:.1} µs</title></rect>"#,
                LANE_HEIGHT - 1.0,
                color(stage),
                stage.name(),
                span.size_bytes,
                (span.end_ns - span.start_ns) as f64 / 1e3,
            );
        }
        top += height.max(34.0) + GAP;
    }
    axis(&mut bands, top, total_ns, scale);
    let mut svg = String::new();
    let height = top + 24.0;
    let _ = writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">"#
    );
    svg.push_str("<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
    text(&mut svg, 6.0, 18.0, 14, title);
    for (line, note) in notes.iter().enumerate() {
        text(&mut svg, 6.0, 34.0 + 14.0 * line as f64, 11, note);
    }
    svg + &bands + "</svg>\n"
}

/// For each span the first lane that is free when it starts.
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

/// Marks at round times.
fn axis(svg: &mut String, top: f64, total_ns: f64, scale: f64) {
    let mut step = 10f64.powf((total_ns / 8.0).log10().floor());
    while total_ns / step > 12.0 {
        step *= if total_ns / step > 24.0 { 5.0 } else { 2.0 };
    }
    let mut at = 0.0;
    while at <= total_ns {
        let x = LEFT + at * scale;
        let _ = writeln!(svg, r##"<line x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{top:.1}" stroke="#ddd"/>"##);
        text(svg, x, top + 14.0, 9, &format!("{:.2} ms", at / 1e6));
        at += step;
    }
}

fn text(svg: &mut String, x: f64, y: f64, size: u32, content: &str) {
    let escaped = content.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, r#"<text x="{x:.1}" y="{y:.1}" font-size="{size}">{escaped}</text>"#);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start_ns: u64, end_ns: u64) -> Span {
        Span { stage: Stage::Fetch, start_ns, end_ns, size_bytes: 1 }
    }

    #[test]
    fn work_at_the_same_time_lies_in_lanes_of_its_own() {
        assert_eq!(lanes(&[span(0, 10), span(5, 8), span(8, 20), span(10, 12)]), [0, 1, 1, 0]);
        assert!(lanes(&vec![span(0, 10); 100]).iter().all(|&lane| lane < MOST_LANES));
    }

    #[test]
    fn a_picture_has_a_bar_for_each_piece_of_work() {
        assert_eq!(gantt(&Report::default(), "nothing", &[]).matches("<rect x").count(), 0);
        let report = Report::of(&[span(0, 400), span(500, 1000)]);
        let svg = gantt(&report, "a < b", &["at best & more".into()]);
        assert_eq!(svg.matches("<rect x").count(), 2);
        assert!(svg.contains("a &lt; b") && svg.contains("at best &amp; more") && svg.ends_with("</svg>\n"));
    }
}
