package build

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/extsort"
	"github.com/buildyard/buildyard/internal/scan/vulndb/feed"
)

// Kinds of facts about a vulnerability: the first byte of a sorted value.
const (
	partFact          = 'p' // a partial vulnerability
	configurationFact = 'c' // rank, then an applicability
)

// collector takes the records of feeds into sorters: facts by vulnerability, advisories
// by package. Its methods but rejectFile and files are called by one goroutine.
type collector struct {
	options Options

	facts      *extsort.Sorter
	advisories *extsort.Sorter
	buf        []byte

	mu      sync.Mutex // guards the fields below
	ledger  ledger
	ignored int
	records int
	bad     int
}

func newCollector(o Options) *collector {
	return &collector{
		options: o, ledger: ledger{},
		facts:      extsort.New(o.Temp, o.MaxMemory/2),
		advisories: extsort.New(o.Temp, o.MaxMemory/4),
	}
}

func (c *collector) close() {
	c.facts.Remove()
	c.advisories.Remove()
}

func (c *collector) files(n feed.Tally) {
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

// add takes a record.
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
	for _, a := range r.Advisories {
		if err := c.advisory(a, r.Modified); err != nil {
			return err
		}
	}
	for _, v := range r.Vulnerabilities {
		if err := c.fact(v.ID, []byte{partFact}, v.AppendBinary); err != nil {
			return err
		}
	}
	for _, list := range r.Configurations {
		for _, a := range list.List {
			if err := c.fact(list.ID, []byte{configurationFact, byte(list.Rank)}, a.AppendBinary); err != nil {
				return err
			}
		}
	}
	return nil
}

// advisory sorts an advisory by its key, the newest of equal ones last.
func (c *collector) advisory(a vulndb.Advisory, modified time.Time) error {
	seconds := int64(0)
	if !modified.IsZero() {
		seconds = max(0, modified.Unix())
	}
	b, err := a.AppendBinary(binary.BigEndian.AppendUint64(c.buf[:0], uint64(seconds)))
	c.buf = b[:0]
	if err != nil {
		return err
	}
	return c.advisories.Add(vulndb.AdvisoryKey(a), b)
}

func (c *collector) fact(id string, head []byte, appendBinary func([]byte) ([]byte, error)) error {
	b, err := appendBinary(append(c.buf[:0], head...))
	c.buf = b[:0]
	if err != nil {
		return err
	}
	return c.facts.Add([]byte(id), b)
}
