"""The feeds of the sweep, by name."""

from tests.mutation.chained import Binance
from tests.mutation.checksummed import Checksummed
from tests.mutation.china import ShanghaiLog, Shenzhen
from tests.mutation.coinbase import Coinbase
from tests.mutation.dbn import Levels, Orders
from tests.mutation.itch import Itch
from tests.mutation.lobster import Lobster
from tests.mutation.tardis import Incremental, Snapshots

FEEDS = {
    "binance-spot": lambda: Binance("spot"),
    "binance-usdm": lambda: Binance("usdm"),
    "bitget": lambda: Checksummed("bitget"),
    "coinbase": Coinbase,
    "dbn-mbo": Orders,
    "dbn-mbp": Levels,
    "itch": Itch,
    "lobster": Lobster,
    "sse": ShanghaiLog,
    "szse": Shenzhen,
    "tardis": Incremental,
    "tardis-snapshots": Snapshots,
    "okx": lambda: Checksummed("okx"),
}
