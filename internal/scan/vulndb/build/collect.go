package build

import (
	"sync"

	"github.com/buildyard/buildyard/internal/scan/vulndb/extsort"
	"github.com/buildyard/buildyard/internal/scan/vulndb/feed"
)

// Kinds of the content of records: the first byte of a sorted value.
const (
	partFact          = 'p' // a partial vulnerability
	configurationFact = 'c' // rank, then an applicability
	advisoryFact      = 'a'
)

// collector adds the records of feeds to sorters: first the content of each by record, then that of
// the newest of each: facts by vulnerability, advisories by package. One goroutine calls its
// methods except rejectFile and files.
type collector struct {
	options Options

	revisions  *extsort.Sorter
	facts      *extsort.Sorter
	advisories *extsort.Sorter
	buf        []byte

	mu      sync.Mutex // guards the fields below
	ledger  sourceCounts
	ignored int
	records int
	bad     int
}

func newCollector(o Options) *collector {
	return &collector{
		options: o, ledger: sourceCounts{},
		revisions:  extsort.New(o.Temp, o.MaxMemory/4),
		facts:      extsort.New(o.Temp, o.MaxMemory/2),
		advisories: extsort.New(o.Temp, o.MaxMemory/4),
	}
}

func (c *collector) close() {
	c.revisions.Remove()
	c.facts.Remove()
	c.advisories.Remove()
}

func (c *collector) files(n feed.Counter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ignored += n.Ignored
}

func (c *collector) rejectFile(r feed.Rejection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ledger.of(r.Feed).reject(r)
	c.bad++
}

// add adds a record.
func (c *collector) add(from string, r feed.Record) error {
	c.mu.Lock()
	c.ledger.add(r)
	c.records++
	c.bad += len(r.Rejected)
	p := Progress{Stage: "read", Input: from, Records: c.records, Rejected: c.bad}
	c.mu.Unlock()
	if p.Records%progressEvery == 0 {
		c.options.Progress(p)
	}
	return c.revision(r)
}
