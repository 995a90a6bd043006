//! Settings of a running stack that its shards keep copies of.

use std::io;

use proto::tcp::Config;

use super::Stack;

impl Stack {
    /// Changes TCP's settings, in every shard.
    ///
    /// # Errors
    /// `InvalidInput`, and nothing is changed: one of those that belong to memory reserved at the start, or to an interface.
    pub fn change_tcp(&self, change: impl FnOnce(&mut Config)) -> io::Result<()> {
        self.host.tcp.change(change, |config| {
            for shard in 0..self.cells.len() {
                self.with_shard(shard, |shard, _| shard.set_tcp(config));
            }
        })
    }
}
