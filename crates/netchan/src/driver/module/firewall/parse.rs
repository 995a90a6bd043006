//! Tables and chains of a file of rules, in nftables' words. What this part of nftables' language does not have is an error that names it.
//!
//! ```text
//! [flush ruleset]
//! table inet|ip|ip6 NAME {
//!     chain NAME {
//!         [type filter|nat hook prerouting|input|forward|output|postrouting priority N; [policy accept|drop;]]
//!         RULES
//!     }
//! }
//! ```

use super::{
    cursor::{Cursor, named},
    rule::{self, Scope},
    rules::{Base, Chain, DEPTH_MAX, End, Hook, RULES_MAX, Rule, Ruleset, Step, WORK_MAX},
    words::{Fault, Word, split},
};

/// Chains of one file at most.
const CHAINS_MAX: usize = 256;
/// A name at most, bytes: of tables and chains, as nftables has it less a margin.
const NAME_MAX: usize = 64;

/// A jump to be resolved, once all chains are known.
struct Jump {
    chain: usize,
    rule: usize,
    step: usize,
    to: Word,
}

/// Reads a file of rules.
///
/// # Errors
/// What is wrong with it, and where.
pub fn parse(text: &str) -> Result<Ruleset, Fault> {
    let mut cursor = Cursor::new(split(text)?);
    let mut file = File {
        text,
        set: Ruleset::default(),
        names: Vec::new(),
        jumps: Vec::new(),
        tables: Vec::new(),
    };
    cursor.skip_ends();
    if cursor.take_if("flush") {
        // A file is all there is: loading it forgets the last one.
        cursor.want(
            "ruleset",
            "the file begins with `flush ruleset`, or a table",
        )?;
        cursor.want_end()?;
    }
    loop {
        cursor.skip_ends();
        if cursor.is_over() {
            break;
        }
        file.table(&mut cursor)?;
    }
    file.resolve()?;
    let File { mut set, names, .. } = file;
    check_work(&set, &names)?;
    let mut order: Vec<usize> = (0..set.chains.len()).collect();
    order.retain(|&at| set.chains[at].base.is_some());
    order.sort_by_key(|&at| set.chains[at].base.map(|base| base.priority));
    set.order = order;
    Ok(set)
}

struct File<'a> {
    text: &'a str,
    set: Ruleset,
    /// The words that name the chains.
    names: Vec<Word>,
    jumps: Vec<Jump>,
    tables: Vec<(Option<bool>, String)>,
}

impl File<'_> {
    fn table(&mut self, cursor: &mut Cursor) -> Result<(), Fault> {
        cursor.want("table", "a file of rules holds tables: `table inet NAME {`")?;
        let families = [("inet", None), ("ip", Some(true)), ("ip6", Some(false))];
        let family = named(&cursor.take(), &families)?;
        let word = name(cursor)?;
        if self.tables.contains(&(family, word.text.clone())) {
            return Err(word.fault("there is a table of this name already"));
        }
        self.tables.push((family, word.text.clone()));
        cursor.want("{", "a table's chains stand in braces")?;
        loop {
            cursor.skip_ends();
            if cursor.take_if("}") {
                break;
            }
            if !cursor.here().is("chain") {
                let why = "a table holds chains (`chain NAME {`); named sets, maps and the like are not supported";
                return Err(cursor.here().fault(why));
            }
            self.chain(cursor, family, &word.text)?;
        }
        if cursor.is_over() {
            Ok(())
        } else {
            cursor.want_end()
        }
    }

    fn chain(
        &mut self,
        cursor: &mut Cursor,
        family: Option<bool>,
        table: &str,
    ) -> Result<(), Fault> {
        cursor.take();
        let word = name(cursor)?;
        let mut others = self
            .set
            .chains
            .iter()
            .filter(|c| c.table == table && c.is_v4 == family);
        if others.any(|other| other.name == word.text) {
            return Err(word.fault("there is a chain of this name already"));
        }
        if self.set.chains.len() >= CHAINS_MAX {
            return Err(word.fault(format!("more than {CHAINS_MAX} chains")));
        }
        cursor.want("{", "a chain's rules stand in braces")?;
        cursor.skip_ends();
        let base = match cursor.take_if("type") {
            true => Some(base(cursor)?),
            false => None,
        };
        self.set.chains.push(Chain {
            table: table.to_owned(),
            name: word.text.clone(),
            is_v4: family,
            base,
            rules: Vec::new(),
        });
        self.names.push(word);
        loop {
            cursor.skip_ends();
            if cursor.take_if("}") {
                break;
            }
            self.rule(cursor)?;
            cursor.want_end()?;
        }
        cursor.want_end()
    }

    fn rule(&mut self, cursor: &mut Cursor) -> Result<(), Fault> {
        let first = cursor.here().clone();
        if self.set.len() >= RULES_MAX {
            return Err(first.fault(format!("more than {RULES_MAX} rules")));
        }
        let number = self.set.chains.len() - 1;
        let Some(chain) = self.set.chains.last_mut() else {
            return Ok(());
        };
        let scope = Scope {
            is_v4: chain.is_v4,
            base: chain.base.map(|base| (base.hook, base.is_nat)),
        };
        let read = rule::read(cursor, scope)?;
        if let Some(to) = read.jump {
            self.jumps.push(Jump {
                chain: number,
                rule: chain.rules.len(),
                step: read.steps.len() - 1,
                to,
            });
        }
        let text = self.text.get(first.span.0..cursor.last().span.1);
        chain.rules.push(Rule {
            line: first.line,
            text: text.map_or(String::new(), |text| {
                let words: Vec<_> = text.split_whitespace().collect();
                words.join(" ")
            }),
            steps: read.steps,
            packets: 0,
            bytes: 0,
        });
        Ok(())
    }

    /// Finds the chains that rules jump to.
    fn resolve(&mut self) -> Result<(), Fault> {
        for Jump {
            chain,
            rule,
            step,
            to,
        } in std::mem::take(&mut self.jumps)
        {
            let from = &self.set.chains[chain];
            let is_it = |other: &Chain| {
                other.table == from.table && other.is_v4 == from.is_v4 && other.name == to.text
            };
            let found = self.set.chains.iter().position(is_it);
            let found = found.ok_or_else(|| to.fault("this table has no chain of this name"))?;
            if self.set.chains[found].base.is_some() {
                return Err(to.fault("this chain is a hook's own: no rule jumps there"));
            }
            self.set.chains[chain].rules[rule].steps[step] = Step::End(End::Jump(found));
        }
        Ok(())
    }
}

/// The name of a table or a chain.
fn name(cursor: &mut Cursor) -> Result<Word, Fault> {
    let word = cursor.take();
    let mut letters = word.text.chars();
    let begins = letters.next().is_some_and(|c| c.is_ascii_alphabetic());
    let goes_on = letters.all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    if word.is_quoted || !begins || !goes_on || word.text.len() > NAME_MAX {
        let why =
            format!("a name is 1 to {NAME_MAX} letters, digits, `_`, `-` and `.`, a letter first");
        return Err(word.fault(why));
    }
    let reserved = [
        "accept",
        "chain",
        "counter",
        "ct",
        "dnat",
        "drop",
        "flush",
        "hook",
        "icmp",
        "icmpv6",
        "iif",
        "iifname",
        "ip",
        "ip6",
        "jump",
        "limit",
        "log",
        "masquerade",
        "meta",
        "oif",
        "oifname",
        "policy",
        "priority",
        "redirect",
        "reject",
        "return",
        "snat",
        "table",
        "tcp",
        "th",
        "type",
        "udp",
        "inet",
        "mark",
        "set",
        "map",
    ];
    if reserved.contains(&word.text.as_str()) {
        return Err(word.fault("this word has a meaning of its own: it is no name"));
    }
    Ok(word)
}

/// `filter hook input priority 0; policy drop;`, behind `type`.
fn base(cursor: &mut Cursor) -> Result<Base, Fault> {
    let so = "`type filter hook input priority 0;`";
    let kind = cursor.take();
    let is_nat = named(&kind, &[("filter", false), ("nat", true)])?;
    cursor.want("hook", so)?;
    let word = cursor.take();
    let hook = named(&word, &Hook::ALL)?;
    match (is_nat, hook) {
        (false, Hook::Input | Hook::Forward | Hook::Output)
        | (true, Hook::Prerouting | Hook::Postrouting) => {}
        (false, _) => return Err(word.fault("filters are supported at input, forward and output")),
        (true, _) => {
            return Err(word.fault("translation is supported at prerouting and postrouting"));
        }
    }
    cursor.want("priority", so)?;
    let priority = priority(cursor, hook, is_nat)?;
    cursor.want_end()?;
    let mut drops = false;
    cursor.skip_ends();
    if cursor.take_if("policy") {
        let word = cursor.take();
        drops = named(&word, &[("accept", false), ("drop", true)])?;
        if drops && is_nat {
            return Err(word.fault("a chain that translates drops nothing"));
        }
        cursor.want_end()?;
    }
    Ok(Base {
        hook,
        is_nat,
        priority,
        drops,
        packets: 0,
        bytes: 0,
    })
}

fn priority(cursor: &mut Cursor, hook: Hook, is_nat: bool) -> Result<i32, Fault> {
    let word = cursor.take();
    let value = match word.text.as_str() {
        _ if word.is_quoted => None,
        "filter" => Some(0),
        "security" => Some(50),
        "mangle" => Some(-150),
        "raw" => Some(-300),
        "dstnat" if hook == Hook::Prerouting => Some(-100),
        "srcnat" if hook == Hook::Postrouting => Some(100),
        number => number.parse().ok(),
    };
    match value {
        Some(value) if is_nat && value <= -200 => {
            Err(word.fault("translation needs tracked flows: a priority above -200"))
        }
        Some(value) => Ok(value),
        None => {
            let why = "no priority here: a number, filter, security, mangle, raw, dstnat (prerouting), srcnat (postrouting)";
            Err(word.fault(why))
        }
    }
}

/// Holds that no chain comes to itself by jumps, and that no packet costs too much.
fn check_work(set: &Ruleset, names: &[Word]) -> Result<(), Fault> {
    // What each chain costs, with those that it jumps to; `None`: not known yet.
    let mut work: Vec<Option<(usize, usize)>> = vec![None; set.chains.len()];
    for _ in 0..=DEPTH_MAX {
        for (at, chain) in set.chains.iter().enumerate() {
            let jumps = chain.rules.iter().flat_map(|rule| &rule.steps);
            let jumps = jumps.filter_map(|step| match step {
                Step::End(End::Jump(to)) => Some(work[*to]),
                _ => None,
            });
            let sum = jumps
                .into_iter()
                .try_fold((chain.rules.len(), 0), |sum, of| {
                    of.map(|of| (usize::saturating_add(sum.0, of.0), sum.1.max(of.1 + 1)))
                });
            work[at] = work[at].or(sum);
        }
    }
    for (found, word) in work.iter().zip(names) {
        match found {
            None => {
                let why = format!(
                    "by jumps it comes to itself, or to more than {DEPTH_MAX} chains within each other"
                );
                return Err(word.fault(why));
            }
            Some((_, depth)) if *depth >= DEPTH_MAX => {
                return Err(word.fault(format!("more than {DEPTH_MAX} chains within each other")));
            }
            Some((steps, _)) if *steps > WORK_MAX => {
                let why = format!(
                    "with the chains that it jumps to, a packet is held against {steps} rules; {WORK_MAX} at most"
                );
                return Err(word.fault(why));
            }
            Some(_) => {}
        }
    }
    Ok(())
}
