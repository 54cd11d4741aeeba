//! Changes entries of consolidated metadata in the text of a stored document. All other bytes stay unchanged.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use super::scan::{Member, Scan, document_kind, split};
use super::{check_node_format, normal, order};
use crate::Result;
use crate::meta::documents::NodeDocuments;
use crate::meta::json::{
    Json, Object, Part, not_an_object, read_document, text_of, write_new_line, write_part, write_string,
};
use crate::meta::names::{CONSOLIDATED, ZATTRS, key};
use crate::meta::{ZarrFormat, invalid};

/// A change of one node in consolidated metadata.
#[derive(Clone, Debug)]
pub struct EntryChange {
    /// The node's path, relative to the group that holds the consolidated metadata. `""` is the group itself; only
    /// `.zmetadata` has entries for it.
    pub path: String,
    /// The node's new documents; `None` removes the entry and all entries below it.
    pub node: Option<NodeDocuments>,
}

/// Changes entries in a stored group document (`zarr.json`, or `.zmetadata` for format 2), one change after another,
/// and leaves all other bytes unchanged. If a node becomes an array, the entries below it are removed. Groups are
/// stored without their own consolidated metadata. Returns `None` if the document has no consolidated metadata, or if
/// nothing changes.
///
/// ```
/// use cuzarr::meta::{EntryChange, ZarrFormat, edit_consolidated};
///
/// let document = br#"{"zarr_format": 3, "node_type": "group", "consolidated_metadata": {"kind": "inline",
///     "metadata": {"a": {"zarr_format": 3, "node_type": "group"}, "b": {"zarr_format": 3, "node_type": "group"}}}}"#;
/// let change = EntryChange { path: "a".into(), node: None };
/// let edited = edit_consolidated(ZarrFormat::V3, document, &[change])?.unwrap();
/// assert!(edited.ends_with(br#""metadata": {"b": {"zarr_format": 3, "node_type": "group"}}}}"#));
/// # Ok::<(), cuzarr::Error>(())
/// ```
///
/// # Errors
/// `InvalidArgument` for a node of another format; `MetadataInvalid` and `UnsupportedFeature` when the document or its
/// consolidated metadata has an unknown form.
pub fn edit_consolidated(format: ZarrFormat, document: &[u8], changes: &[EntryChange]) -> Result<Option<Vec<u8>>> {
    let text = text_of(document)?;
    let edited = edit(format, text, changes)?;
    let mark = &document[..document.len() - text.len()];
    Ok(edited.map(|edited| match mark {
        [] => edited.into_bytes(),
        mark => [mark, edited.as_bytes()].concat(),
    }))
}

/// Like [`edit_consolidated`], for a document that is already text.
pub(super) fn edit(format: ZarrFormat, text: &str, changes: &[EntryChange]) -> Result<Option<String>> {
    let goal = Goal::new(format, changes)?;
    let Some(scan) = find(format, text)? else { return Ok(None) };
    let (place, members) = scan.members(format, text)?;
    let layout = TextLayout::new(format, text, &place, &members);
    let edit = Edit { text, place, members, layout };
    let plan = match format {
        ZarrFormat::V2 => edit.plan_v2(&goal),
        ZarrFormat::V3 => edit.plan_v3(&goal),
    };
    Ok(plan.changes_something().then(|| edit.write(&plan)))
}

/// Finds the consolidated metadata in the text of a document; `None` if it has none.
fn find(format: ZarrFormat, text: &str) -> Result<Option<Scan<'_>>> {
    read_document(text, |parser| {
        if format == ZarrFormat::V2 {
            let scan = Scan::of(format, parser)?;
            return if scan.is_some() { Ok(scan) } else { Err(not_an_object(&parser.value()?)) };
        }
        let (mut scan, mut other, mut node_type) = (None, Json::Null, Json::Null);
        let object = parser.object(|parser, _, name| {
            match &*name {
                CONSOLIDATED => {
                    scan = Scan::of(format, parser)?;
                    other = if scan.is_some() { Json::Null } else { parser.value()? };
                }
                "node_type" => node_type = parser.value()?,
                _ => {
                    parser.pass()?;
                }
            }
            Ok(())
        })?;
        match object {
            None => Err(not_an_object(&parser.value()?)),
            Some(_) if node_type == Json::String("array".into()) => Ok(None),
            Some(_) if other != Json::Null => Err(invalid(CONSOLIDATED, &other.to_value(), "an object")),
            Some(_) => Ok(scan),
        }
    })
}

/// The entries of consolidated metadata that all changes together remove and add.
struct Goal {
    nodes: BTreeMap<String, NodeDocuments>,
    /// Paths whose entries are removed, if they exist.
    removed: HashSet<String>,
    /// Paths below which all existing entries are removed.
    emptied: HashSet<String>,
}

impl Goal {
    fn new(format: ZarrFormat, changes: &[EntryChange]) -> Result<Goal> {
        let mut goal = Goal { nodes: BTreeMap::new(), removed: HashSet::new(), emptied: HashSet::new() };
        for EntryChange { path, node } in changes {
            let path = normal(path);
            if let Some(node) = node {
                check_node_format(format, &path, node)?;
            }
            if node.as_ref().is_none_or(NodeDocuments::is_array) {
                goal.empty(&path);
            }
            match node {
                None => goal.remove(&path),
                // In v3 the document is the group's own, so it has no entry for the group.
                Some(_) if path.is_empty() && format == ZarrFormat::V3 => {}
                Some(node) => drop(goal.nodes.insert(path.into_owned(), node.clone().alone())),
            }
        }
        Ok(goal)
    }

    fn empty(&mut self, path: &str) {
        let below = key(path, "");
        let gone = self.nodes.range(below.clone()..).map(|(path, _)| path).take_while(|path| path.starts_with(&below));
        for path in gone.cloned().collect::<Vec<_>>() {
            self.nodes.remove(&path);
        }
        self.emptied.insert(path.to_owned());
    }

    fn remove(&mut self, path: &str) {
        // The group itself has no entry to remove.
        if !path.is_empty() {
            self.nodes.remove(path);
            self.removed.insert(path.to_owned());
        }
    }

    /// Whether the changes remove the existing entry at `path`.
    fn loses(&self, path: &str) -> bool {
        let mut above = path.match_indices('/').map(|(end, _)| &path[..end]);
        let is_below_root = !path.is_empty() && self.emptied.contains("");
        self.removed.contains(path) || is_below_root || above.any(|above| self.emptied.contains(above))
    }
}

/// How new entries are written, so that they look like existing ones.
struct TextLayout<'a> {
    /// The white space that indents one level; `None` if entries are on one line.
    unit: Option<&'a str>,
    /// The nesting depth of the entries in the document.
    level: usize,
    /// The text between two entries: a comma and white space.
    gap: Cow<'a, str>,
}

impl<'a> TextLayout<'a> {
    fn new(format: ZarrFormat, text: &'a str, place: &Range<usize>, members: &[Member<'_>]) -> TextLayout<'a> {
        let level = if format == ZarrFormat::V2 { 2 } else { 3 };
        let unit = text.split_once('{').and_then(|(_, rest)| {
            let space = &rest[..rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len()];
            space.rsplit_once('\n').map(|(_, unit)| unit)
        });
        // Entries may be on one line although the document is not.
        let first = members.first().map(|member| &text[place.start + 1..member.start]);
        let unit = unit.filter(|_| first.is_none_or(|space| space.contains('\n')));
        let gap = match members {
            [first, second, ..] => Cow::Borrowed(&text[first.value.end..second.start]),
            _ => {
                let mut gap = String::from(if unit.is_some() { "," } else { ", " });
                write_new_line(&mut gap, unit, level);
                Cow::Owned(gap)
            }
        };
        TextLayout { unit, level, gap }
    }

    fn value(&self, members: &Object) -> String {
        let mut out = String::new();
        write_part(&mut out, Part::Object(members), self.unit, self.level);
        out
    }

    fn member(&self, name: &str, members: &Object) -> String {
        let mut out = String::new();
        write_string(&mut out, name);
        out.push_str(": ");
        write_part(&mut out, Part::Object(members), self.unit, self.level);
        out
    }
}

/// The change of one existing member of the consolidated metadata in the text.
#[derive(Clone)]
enum EditStep {
    Keep,
    Drop,
    /// The member keeps its name and gets this text as its value.
    Value(String),
    /// The member is replaced by this text, which has a name and a value.
    Member(String),
}

struct EditPlan {
    /// For each existing member of the text, what happens to it.
    steps: Vec<EditStep>,
    /// New members, each with the index of the existing member that follows it.
    new: Vec<(usize, String)>,
}

impl EditPlan {
    fn changes_something(&self) -> bool {
        !self.new.is_empty() || self.steps.iter().any(|step| !matches!(step, EditStep::Keep))
    }
}

/// An edit of the member `metadata`, which holds all entries, in a stored document.
struct Edit<'a> {
    text: &'a str,
    place: Range<usize>,
    members: Vec<Member<'a>>,
    layout: TextLayout<'a>,
}

impl Edit<'_> {
    fn plan_v3(&self, goal: &Goal) -> EditPlan {
        let paths: Vec<Cow<'_, str>> = self.members.iter().map(|member| normal(&member.name)).collect();
        // If paths are equal, the last entry counts.
        let last: HashMap<&str, usize> = paths.iter().enumerate().map(|(at, path)| (&**path, at)).collect();
        let step = |(at, path): (usize, &Cow<'_, str>)| match goal.nodes.get(&**path) {
            Some(node) if last.get(&**path) == Some(&at) => self.replaced(at, &node.document),
            None if goal.loses(path) => EditStep::Drop,
            _ => EditStep::Keep,
        };
        let steps: Vec<EditStep> = paths.iter().enumerate().map(step).collect();
        let absent = goal.nodes.iter().filter(|(path, _)| !last.contains_key(path.as_str()));
        let new = absent.map(|(path, node)| (path.as_str(), vec![self.layout.member(path, &node.document)]));
        EditPlan { new: places(&paths, &steps, new.collect()), steps }
    }

    fn plan_v2(&self, goal: &Goal) -> EditPlan {
        let keys: Vec<(&str, &str)> = self.members.iter().map(|member| split(&member.name)).collect();
        let paths: Vec<Cow<'_, str>> = keys.iter().map(|(path, _)| normal(path)).collect();
        let mut steps = vec![EditStep::Keep; paths.len()];
        let mut found: HashMap<&str, [Option<usize>; 3]> = HashMap::new();
        for (at, (path, (_, name))) in paths.iter().zip(&keys).enumerate() {
            match (goal.nodes.contains_key(&**path), document_kind(name)) {
                (true, Some(kind)) => found.entry(path).or_default()[kind] = Some(at),
                (false, _) if goal.loses(path) => steps[at] = EditStep::Drop,
                _ => {}
            }
        }
        let (mut attributes, mut absent) = (Vec::new(), Vec::new());
        let empty = Object::new();
        for (path, node) in &goal.nodes {
            let zattrs = node.zattrs.as_ref().unwrap_or(&empty);
            let new_zattrs = || self.layout.member(&key(path, ZATTRS), zattrs);
            let new_document = || self.layout.member(&key(path, node.name()), &node.document);
            let [zarray, zgroup, old_zattrs] = found.get(path.as_str()).copied().unwrap_or_default();
            let (own, other) = if node.is_array() { (zarray, zgroup) } else { (zgroup, zarray) };
            let Some(main) = own.or(other) else {
                old_zattrs.into_iter().for_each(|at| steps[at] = EditStep::Drop);
                absent.push((path.as_str(), vec![new_zattrs(), new_document()]));
                continue;
            };
            other.into_iter().for_each(|at| steps[at] = EditStep::Drop);
            steps[main] =
                if own.is_some() { self.replaced(main, &node.document) } else { EditStep::Member(new_document()) };
            match old_zattrs {
                Some(at) => steps[at] = self.replaced(at, zattrs),
                None if zattrs.is_empty() => {}
                None => attributes.push((main, new_zattrs())),
            }
        }
        let mut new = places(&paths, &steps, absent);
        // The sort is stable, so attributes stay beside the document to which they belong.
        new.extend(attributes);
        new.sort_by_key(|(at, _)| *at);
        EditPlan { steps, new }
    }

    /// Returns the edit that gives the existing member number `at` the value `members`: none if it already has this
    /// value.
    fn replaced(&self, at: usize, members: &Object) -> EditStep {
        let old = Json::parse_object(self.text[self.members[at].value.clone()].as_bytes());
        if old.is_ok_and(|old| old == *members) { EditStep::Keep } else { EditStep::Value(self.layout.value(members)) }
    }

    fn write(&self, plan: &EditPlan) -> String {
        let (text, place, members) = (self.text, &self.place, &self.members);
        let mut out = String::with_capacity(text.len() + plan.new.iter().map(|(_, new)| new.len() + 32).sum::<usize>());
        out.push_str(&text[..=place.start]);
        let mut new = plan.new.iter().peekable();
        let mut is_first = true;
        for at in 0..=members.len() {
            while let Some((_, member)) = new.next_if(|(before, _)| *before == at) {
                self.begin(&mut out, &mut is_first, None);
                out.push_str(member);
            }
            let (Some(member), Some(step)) = (members.get(at), plan.steps.get(at)) else { continue };
            if !matches!(step, EditStep::Drop) {
                self.begin(&mut out, &mut is_first, Some(at));
            }
            match step {
                EditStep::Drop => {}
                EditStep::Keep => out.push_str(&text[member.start..member.value.end]),
                EditStep::Value(value) => out.extend([&text[member.start..member.value.start], value]),
                EditStep::Member(member) => out.push_str(member),
            }
        }
        match members.last() {
            _ if is_first => {}
            Some(last) => out.push_str(&text[last.value.end..place.end - 1]),
            None => write_new_line(&mut out, self.layout.unit, self.layout.level - 1),
        }
        out.push_str(&text[place.end - 1..]);
        out
    }

    /// Writes the comma and white space that come before a member. An existing member keeps its own white space.
    fn begin(&self, out: &mut String, is_first: &mut bool, at: Option<usize>) {
        let members = &self.members;
        match (std::mem::take(is_first), at) {
            (true, _) => match members.first() {
                Some(first) => out.push_str(&self.text[self.place.start + 1..first.start]),
                None => write_new_line(out, self.layout.unit, self.layout.level),
            },
            (false, Some(at)) if at > 0 => {
                out.push_str(&self.text[members[at - 1].value.end..members[at].start]);
            }
            (false, _) => out.push_str(&self.layout.gap),
        }
    }
}

/// Where new members are inserted: each before the first existing member whose path sorts after its own.
fn places(paths: &[Cow<'_, str>], steps: &[EditStep], new: Vec<(&str, Vec<String>)>) -> Vec<(usize, String)> {
    let mut new = new;
    new.sort_by(|(one, _), (other, _)| order(one).cmp(&order(other)));
    let mut new = new.into_iter().peekable();
    let mut placed = Vec::new();
    for (at, path) in paths.iter().enumerate().filter(|(at, _)| !matches!(steps[*at], EditStep::Drop)) {
        while let Some((_, members)) = new.next_if(|(other, _)| order(other) < order(path)) {
            placed.extend(members.into_iter().map(|member| (at, member)));
        }
    }
    placed.extend(new.flat_map(|(_, members)| members).map(|member| (paths.len(), member)));
    placed
}
