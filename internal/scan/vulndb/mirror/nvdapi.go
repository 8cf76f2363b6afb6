package mirror

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/retry"
	"github.com/buildyard/buildyard/internal/scan/vulndb/download"
)

// Limits of NVD's API (https://nvd.nist.gov/developers/vulnerabilities and start-here).
const (
	pageRecords = 2000
	maxWindow   = 120 * 24 * time.Hour // between the dates of a query
	pauseNoKey  = 6 * time.Second      // 5 requests in 30 s
	pauseKey    = time.Second          // 50 requests in 30 s
)

const (
	// overlap is how much of the former window is queried again: a change may be visible some time after its date.
	overlap = 2 * time.Hour
	// feedLag is how old the changes are, at most, that the feeds do not have yet; they are made once a day.
	feedLag = 48 * time.Hour
	// maxPageFiles is the number of files with changes from which on everything is collected again, into fewer files.
	maxPageFiles = 400
	// maxRestarts bounds the restarts of a window whose records change while its pages are read.
	maxRestarts = 3
	// maxPendingAge is the age of an interrupted collection that is resumed: the order of older records may differ.
	maxPendingAge = time.Hour
	// maxPendingAllAge is that of a collection of everything, to whose end new records are added.
	maxPendingAllAge = 48 * time.Hour

	queryDate = "2006-01-02T15:04:05.000Z"
	nameDate  = "20060102T150405Z"
)

// Collection is an unfinished collection of pages.
type Collection struct {
	Began time.Time `json:"began"`
	Start time.Time `json:"start,omitzero"` // of the changes; zero: all records
	End   time.Time `json:"end"`
	Next  int       `json:"next"`  // index of the first record that is not yet collected
	Total int       `json:"total"` // records, as the last page states; 0 before the first page
}

func (p *Collection) isAll() bool { return p.Start.IsZero() }

func (p *Collection) fileName(source string) string {
	return fmt.Sprintf("%s%07d.json.gz", p.filePrefix(source), p.Next)
}

// filePrefix returns what the names of all files of the collection begin with.
func (p *Collection) filePrefix(source string) string {
	if p.isAll() {
		return fmt.Sprintf("%s/all-%s-", source, p.Began.Format(nameDate))
	}
	return fmt.Sprintf("%s/changes-%s-%s-", source, p.Start.Format(nameDate), p.End.Format(nameDate))
}

// forgetCollected starts the collection again, after files were damaged. One from the start that is not finished, and
// whose files are whole, has their records, too.
func (c *collector) forgetCollected(damaged []File) {
	if p := c.state.Pending; p == nil || !c.state.Collected.IsZero() || slices.ContainsFunc(damaged, func(f File) bool {
		return strings.HasPrefix(f.Name, p.filePrefix(c.source.Name))
	}) {
		c.state.Collected, c.state.Pending = time.Time{}, nil
	}
}

// isStale reports whether a collection must be started again.
func (p *Collection) isStale(now time.Time) bool {
	most := maxPendingAge
	if p.isAll() {
		most = maxPendingAllAge
	}
	return now.Sub(p.Began) > most || now.Before(p.Began)
}

// collectChanges collects the records that changed since the last collection, or since the feeds were made; without
// both, all records.
func (c *collector) collectChanges(ctx context.Context) error {
	end := c.now()
	if p := c.state.Pending; p != nil && p.isStale(end) {
		c.state.Pending = nil
	}
	pause := &pauses{interval: c.nvdPause}
	if pause.interval == 0 {
		pause.interval = pauseNoKey
		if c.NVDKey != "" {
			pause.interval = pauseKey
		}
	}
	for {
		if c.state.Pending == nil {
			c.state.Pending = c.nextCollection(end)
		}
		p := c.state.Pending
		if err := c.collectWindow(ctx, p, pause); err != nil {
			return err
		}
		if err := c.finish(p); err != nil {
			return err
		}
		if !p.End.Before(end) {
			return c.dropOlderThan(c.feedsDate())
		}
	}
}

// nextCollection returns the next part of the changes up to a time.
func (c *collector) nextCollection(end time.Time) *Collection {
	from := c.state.Collected
	if !from.IsZero() {
		from = from.Add(-overlap)
	}
	if feeds := c.feedsDate(); from.Before(feeds) {
		from = feeds
	}
	if from.IsZero() || len(c.state.Files) > maxPageFiles || from.After(end) {
		return &Collection{Began: c.now(), End: end}
	}
	p := &Collection{Began: c.now(), Start: from, End: from.Add(maxWindow)}
	if p.End.After(end) {
		p.End = end
	}
	return p
}

// feedsDate returns a time before which the mirror's feeds have all changes; zero when it has no feeds. The newest feed
// tells when NVD made them last, which may be long before they were checked.
func (c *collector) feedsDate() time.Time {
	s := c.manifest.Sources["nvd"]
	if s == nil || s.Checked.IsZero() || len(s.Files) == 0 {
		return time.Time{}
	}
	made := slices.MaxFunc(s.Files, func(a, b File) int { return a.Date.Compare(b.Date) }).Date
	if made.After(s.Checked) {
		made = s.Checked
	}
	return made.Add(-feedLag)
}

// finish records the end of a collection. One of everything replaces all former files.
func (c *collector) finish(p *Collection) error {
	c.state.Collected, c.state.Pending = p.End, nil
	if p.isAll() {
		current := p.filePrefix(c.source.Name)
		if err := c.drop(func(f File) bool { return !strings.HasPrefix(f.Name, current) }); err != nil {
			return err
		}
	}
	return c.manifest.save(c.Dir)
}

// dropOlderThan removes the changes that the feeds have.
func (c *collector) dropOlderThan(date time.Time) error {
	return c.drop(func(f File) bool {
		return strings.HasPrefix(f.Name, c.source.Name+"/changes-") && f.Date.Before(date)
	})
}

// collectWindow collects the pages of a collection that are missing. When the number of records changes, some may
// have moved to a page that was already read: the window is read again.
func (c *collector) collectWindow(ctx context.Context, p *Collection, pause *pauses) error {
	for restarts := 0; ; {
		page, err := c.collectPage(ctx, p, pause)
		if err != nil {
			return err
		}
		if p.Next > 0 && page.total != p.Total && !p.isAll() {
			if restarts++; restarts > maxRestarts {
				return fmt.Errorf("%s: the records change while they are read; run this command again", c.source.URL)
			}
			p.Next, p.Total = 0, 0
			continue
		}
		p.Next, p.Total = p.Next+page.records, page.total
		if err := c.manifest.save(c.Dir); err != nil {
			return err
		}
		if p.Next >= p.Total {
			return nil
		}
	}
}

// collectPage fetches one page and puts it into the mirror, unless it has no records.
func (c *collector) collectPage(ctx context.Context, p *Collection, pause *pauses) (page, error) {
	name := p.fileName(c.source.Name)
	query := url.Values{"startIndex": {strconv.Itoa(p.Next)}, "resultsPerPage": {strconv.Itoa(pageRecords)}}
	if !p.isAll() {
		query.Set("lastModStartDate", p.Start.Format(queryDate))
		query.Set("lastModEndDate", p.End.Format(queryDate))
	}
	q := c.request(name, c.source.URL+"?"+query.Encode())
	q.Known, q.ForbiddenIsBusy, q.Wait = download.Validators{}, true, pause.wait
	q.Part = filepath.Join(c.Dir, partName, c.source.Name+"_page") // it is never resumed
	if c.NVDKey != "" {
		q.Header = http.Header{"Apikey": {c.NVDKey}}
	}
	if err := download.Discard(q.Part); err != nil {
		return page{}, err
	}
	if _, err := c.fetch(ctx, q); err != nil {
		return page{}, err
	}
	got, err := readPage(q.Part)
	switch {
	case err != nil:
	case got.start != p.Next:
		err = fmt.Errorf("the page begins at %d, requested was %d", got.start, p.Next)
	case got.records == 0 && p.Next < got.total:
		err = fmt.Errorf("the page at %d of %d records is empty", p.Next, got.total)
	}
	if err != nil {
		return page{}, errors.Join(fmt.Errorf("%s: %w", c.source.URL, err), download.Discard(q.Part))
	}
	if got.records == 0 {
		return got, download.Discard(q.Part)
	}
	return got, c.put(ctx, q.Part, File{Name: name, URL: q.URL, Date: p.End, Records: got.records})
}

// pauses keeps the time between requests.
type pauses struct {
	interval time.Duration
	last     time.Time
}

func (p *pauses) wait(ctx context.Context) error {
	if !p.last.IsZero() {
		if err := retry.Sleep(ctx, p.interval-time.Since(p.last)); err != nil {
			return err
		}
	}
	p.last = time.Now()
	return nil
}
