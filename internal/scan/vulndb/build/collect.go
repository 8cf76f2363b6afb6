package build

import (
	"sync"

	"github.com/buildyard/buildyard/internal/scan/vulndb/extsort"
	"github.com/buildyard/buildyard/internal/scan/vulndb/feed"
)

// Kinds of the content of records: the first byte of a sorted value.
const (
	vulnerabilityFact = 'p' // a partial vulnerability
	configurationFact = 'c' // rank, then an applicability
	advisoryFact      = 'a'
	descriptionFact   = 'd' // rank, then a description
	codeFact          = 'g' // the code that an advisory names
)

// collector adds the records of feeds to sorters: first the content of each by record, then that of
// the newest of each: facts by vulnerability, advisories by package. One goroutine calls its
// methods except rejectFile and files.
type collector struct {
	options Options

	revisions  *extsort.Sorter
	facts      *extsort.Sorter
	advisories *extsort.Sorter
	code       *extsort.Sorter
	buf        []byte

	mu            sync.Mutex // guards the fields below
	counts        sourceCounts
	ignoredFiles  int
	recordCount   int
	rejectedCount int
}

func newCollector(o Options) *collector {
	return &collector{
		options: o, counts: sourceCounts{},
		revisions:  extsort.New(o.Temp, o.MaxMemory/4),
		facts:      extsort.New(o.Temp, o.MaxMemory/2),
		advisories: extsort.New(o.Temp, o.MaxMemory/4),
		code:       extsort.New(o.Temp, o.MaxMemory/16), // a quarter of a megabyte as of 2026
	}
}

func (c *collector) close() {
	c.revisions.Remove()
	c.facts.Remove()
	c.advisories.Remove()
	c.code.Remove()
}

func (c *collector) addFileCounts(n feed.FileCounts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ignoredFiles += n.Ignored
}

func (c *collector) rejectFile(r feed.Rejection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.forSource(r.Feed).addRejection(r)
	c.rejectedCount++
}

// addRecord adds a record.
func (c *collector) addRecord(from string, r feed.Record) error {
	c.mu.Lock()
	c.counts.addRecord(r)
	c.recordCount++
	c.rejectedCount += len(r.Rejected)
	p := Progress{Stage: "read", Input: from, Records: c.recordCount, Rejected: c.rejectedCount}
	c.mu.Unlock()
	if p.Records%progressEvery == 0 {
		c.options.Progress(p)
	}
	return c.addRevision(r)
}
