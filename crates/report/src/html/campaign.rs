//! A long search as the page shows it: what was reached when, and the tree of images or of paths.
//!
//! **Purpose.** [`Campaign`] is plain data, which whoever reads a campaign's folder fills in. Here
//! is decided what of it is shown; the page's script only draws it. So it is tested without a
//! browser.
//!
//! **Guarantee.** What is drawn is what the folder has: no point is made up between two that were
//! written down, and what is left out is counted. The way to each image with findings is there from
//! the root on, as long as [`IMAGES_MAX`] allows; other images follow in the order in which they
//! came.
//!
//! **Deviations.** Of many points at most [`POINTS_MAX`] a curve are kept: where it rises, and the
//! last one, first.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

/// How many points a curve has at most.
pub const POINTS_MAX: usize = 300;
/// How many images are drawn at most.
pub const IMAGES_MAX: usize = 400;

/// A long search, from its folder.
#[derive(Clone, Debug, Default)]
pub struct Campaign {
    /// `fuzz of ./store pool`.
    pub title: String,
    /// Where it is kept.
    pub folder: String,
    /// Whether it goes on; none if that cannot be known.
    pub is_running: Option<bool>,
    /// What was reached when, in order of time.
    pub moments: Vec<Moment>,
    /// The images, if it makes any; of a search that solves for inputs, the paths.
    pub images: Vec<Image>,
    /// They are paths.
    pub is_of_paths: bool,
}

/// What was reached at a time.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// How long it had run.
    pub seconds: f64,
    /// Executions until then.
    pub executions: u64,
    /// What is counted as progress, by name.
    pub coverage: Vec<(String, u64)>,
    /// Findings by severity.
    pub findings: Vec<(String, u64)>,
    /// The tool was started: figures of coverage begin anew.
    pub is_first: bool,
}

/// What a program's files hold when it starts; or a path, which an input leads along.
#[derive(Clone, Debug)]
pub struct Image {
    /// In order of arrival.
    pub number: u32,
    /// The image that it came from, by number.
    pub parent: Option<u32>,
    /// How.
    pub way: Way,
    /// The same in one short line.
    pub origin: String,
    /// How many test cases start from it.
    pub cases: u64,
    /// Fingerprints of what these have shown.
    pub findings: Vec<String>,
}

/// How an image came about, or the input of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// It was there from the beginning.
    Root,
    /// A run left it behind.
    Run,
    /// A crash left it behind.
    Crash,
    /// Its bytes were flipped.
    Flipped,
    /// A branch was turned by the solver since the path before.
    Turned,
    /// The input was put together from parts of others.
    Made,
}

/// What the script gets.
#[derive(Debug, PartialEq, Serialize)]
pub struct Shown {
    title: String,
    folder: String,
    running: Option<bool>,
    seconds: f64,
    executions: u64,
    /// When the tool was started again.
    resumed: Vec<f64>,
    curves: Vec<Curve>,
    findings: Vec<Curve>,
    tree: Vec<Node>,
    /// How many images there are.
    images: u64,
    /// They are paths.
    is_of_paths: bool,
}

/// A number over time.
#[derive(Debug, PartialEq, Serialize)]
struct Curve {
    name: String,
    points: Vec<(f64, u64)>,
}

/// A row of the tree, below the row of its parent.
#[derive(Debug, PartialEq, Serialize)]
struct Node {
    number: u32,
    /// The row of the image that it came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<usize>,
    depth: u32,
    way: Way,
    origin: String,
    cases: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    findings: Vec<String>,
    /// How many images that came from it are not shown.
    #[serde(skip_serializing_if = "is_zero")]
    more: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Campaign {
    /// What of it is shown.
    pub fn shown(&self) -> Shown {
        let last = self.moments.last();
        let executions = self.moments.iter().map(|m| (m.seconds, m.executions));
        let mut curves = vec![Curve::of("executions", executions.collect())];
        curves.extend(curves_of(&self.moments, |moment| &moment.coverage));
        let resumed = self.moments.iter().skip(1).filter(|m| m.is_first);
        Shown {
            title: self.title.clone(),
            folder: self.folder.clone(),
            running: self.is_running,
            seconds: last.map_or(0.0, |moment| moment.seconds),
            executions: last.map_or(0, |moment| moment.executions),
            resumed: resumed.map(|moment| moment.seconds).collect(),
            curves,
            findings: curves_of(&self.moments, |moment| &moment.findings),
            tree: tree(&self.images),
            images: self.images.len() as u64,
            is_of_paths: self.is_of_paths,
        }
    }
}

/// One each name, in the order in which the names first come.
fn curves_of(moments: &[Moment], of: impl Fn(&Moment) -> &Vec<(String, u64)>) -> Vec<Curve> {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in moments.iter().flat_map(&of) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let curve = |name: &&str| {
        // What is not named yet is nothing yet.
        let value = |moment: &Moment| {
            let found = of(moment).iter().find(|(one, _)| one == name);
            found.map_or(0, |(_, value)| *value)
        };
        Curve::of(
            name,
            moments.iter().map(|m| (m.seconds, value(m))).collect(),
        )
    };
    names.iter().map(curve).collect()
}

impl Curve {
    fn of(name: &str, points: Vec<(f64, u64)>) -> Curve {
        Curve {
            name: name.to_owned(),
            points: thinned(points),
        }
    }
}

/// Points between equal ones are not needed; of what is left, evenly many.
fn thinned(points: Vec<(f64, u64)>) -> Vec<(f64, u64)> {
    let last = points.len().saturating_sub(1);
    let matters = |at: usize| {
        at == 0
            || at == last
            || points[at].1 != points[at - 1].1
            || points[at].1 != points[at + 1].1
    };
    let kept: Vec<(f64, u64)> = (0..points.len())
        .filter(|at| matters(*at))
        .map(|at| points[at])
        .collect();
    if kept.len() <= POINTS_MAX {
        return kept;
    }
    // The first and the last are among them.
    let at = |n: usize| n * (kept.len() - 1) / (POINTS_MAX - 1);
    (0..POINTS_MAX).map(|n| kept[at(n)]).collect()
}

fn tree(images: &[Image]) -> Vec<Node> {
    let by_number: HashMap<u32, &Image> = images.iter().map(|i| (i.number, i)).collect();
    // From an image to its root. A damaged tree may go round in circles.
    let way = |image: &Image| -> Vec<u32> {
        let mut seen = BTreeSet::new();
        let mut way = Vec::new();
        let mut at = Some(image.number);
        while let Some(number) = at.filter(|number| seen.insert(*number)) {
            way.push(number);
            at = by_number.get(&number).and_then(|image| image.parent);
        }
        way
    };
    let mut chosen: BTreeSet<u32> = BTreeSet::new();
    let with_findings = images.iter().filter(|image| !image.findings.is_empty());
    for image in with_findings.chain(images) {
        let way = way(image);
        let new = way.iter().filter(|number| !chosen.contains(number)).count();
        if chosen.len() + new <= IMAGES_MAX {
            chosen.extend(way);
        }
    }
    let mut children: BTreeMap<Option<u32>, Vec<&Image>> = BTreeMap::new();
    for image in images {
        let parent = image.parent.filter(|parent| by_number.contains_key(parent));
        children.entry(parent).or_default().push(image);
    }
    let mut rows: Vec<Node> = Vec::new();
    let mut left: Vec<(Option<usize>, u32, &Image)> = Vec::new();
    let roots = children.get(&None).into_iter().flatten().rev();
    left.extend(
        roots
            .filter(|i| chosen.contains(&i.number))
            .map(|i| (None, 0, *i)),
    );
    while let Some((parent, depth, image)) = left.pop() {
        let below = children.get(&Some(image.number));
        let below = below.map_or(&[][..], Vec::as_slice);
        let (shown, hidden): (Vec<&Image>, Vec<&Image>) =
            below.iter().partition(|one| chosen.contains(&one.number));
        let row = rows.len();
        rows.push(Node {
            number: image.number,
            parent,
            depth,
            way: image.way,
            origin: image.origin.clone(),
            cases: image.cases,
            findings: image.findings.clone(),
            more: hidden.len() as u64,
        });
        let next = shown.into_iter().rev();
        left.extend(next.map(|one| (Some(row), depth + 1, one)));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(seconds: f64, executions: u64, paths: u64, errors: u64) -> Moment {
        Moment {
            seconds,
            executions,
            coverage: vec![("PM paths".into(), paths)],
            findings: vec![("correctness".into(), errors)],
            is_first: seconds == 0.0,
        }
    }

    fn image(number: u32, parent: Option<u32>, findings: &[&str]) -> Image {
        Image {
            number,
            parent,
            way: if parent.is_none() {
                Way::Root
            } else {
                Way::Run
            },
            origin: format!("image {number}"),
            cases: 1,
            findings: findings.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn curves_have_what_was_written_down() {
        let mut again = moment(3.0, 30, 1, 1);
        again.is_first = true;
        // A figure that nobody has named before.
        again.coverage.push(("edges".into(), 9));
        let campaign = Campaign {
            moments: vec![
                moment(0.0, 0, 0, 0),
                moment(1.0, 10, 4, 0),
                moment(1.5, 15, 4, 0),
                moment(2.0, 20, 4, 1),
                again,
            ],
            is_running: Some(true),
            ..Campaign::default()
        };
        let shown = campaign.shown();
        assert_eq!((shown.seconds, shown.executions), (3.0, 30));
        assert_eq!(shown.resumed, [3.0]);
        let names: Vec<&str> = shown.curves.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["executions", "PM paths", "edges"]);
        // Between equal ones nothing is lost.
        let paths = &shown.curves[1].points;
        assert_eq!(*paths, [(0.0, 0), (1.0, 4), (2.0, 4), (3.0, 1)]);
        assert_eq!(shown.curves[2].points.last(), Some(&(3.0, 9)));
        let errors = &shown.findings[0];
        assert_eq!(errors.name, "correctness");
        assert_eq!(errors.points, [(0.0, 0), (1.5, 0), (2.0, 1), (3.0, 1)]);
        assert_eq!(Campaign::default().shown().curves[0].points, []);
    }

    #[test]
    fn long_curves_keep_both_ends() {
        let points: Vec<(f64, u64)> = (0..10_000).map(|n| (f64::from(n), n as u64)).collect();
        let kept = thinned(points);
        assert_eq!(kept.len(), POINTS_MAX);
        assert_eq!((kept[0], kept[POINTS_MAX - 1]), ((0.0, 0), (9999.0, 9999)));
    }

    #[test]
    fn images_stand_below_what_they_came_from() {
        let images = [
            image(0, None, &[]),
            image(1, Some(0), &["aa"]),
            image(2, Some(0), &[]),
            image(3, Some(1), &["bb", "cc"]),
        ];
        let rows: Vec<(u32, Option<usize>, u32)> = tree(&images)
            .iter()
            .map(|row| (row.number, row.parent, row.depth))
            .collect();
        assert_eq!(
            rows,
            [
                (0, None, 0),
                (1, Some(0), 1),
                (3, Some(1), 2),
                (2, Some(0), 1)
            ]
        );
    }

    #[test]
    fn the_way_to_a_finding_is_there_however_many_images_there_are() {
        let mut images = vec![image(0, None, &[])];
        images.extend((1..3000).map(|number| image(number, Some(0), &[])));
        images.push(image(3000, Some(2999), &[]));
        images.push(image(3001, Some(3000), &["aa"]));
        let rows = tree(&images);
        assert_eq!(rows.len(), IMAGES_MAX);
        let last = rows.iter().find(|row| row.number == 3001).expect("shown");
        let parent = &rows[last.parent.expect("it has one")];
        assert_eq!(parent.number, 3000);
        assert_eq!(rows[parent.parent.expect("it has one")].number, 2999);
        let hidden: u64 = rows.iter().map(|row| row.more).sum();
        assert_eq!(hidden + IMAGES_MAX as u64, images.len() as u64);
    }

    #[test]
    fn a_damaged_tree_ends() {
        let images = [
            image(0, None, &[]),
            image(1, Some(2), &["aa"]),
            image(2, Some(1), &[]),
            image(3, Some(77), &[]),
        ];
        let rows: Vec<u32> = tree(&images).iter().map(|row| row.number).collect();
        assert_eq!(rows, [0, 3]);
    }
}
