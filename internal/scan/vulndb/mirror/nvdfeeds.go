package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb/download"
)

// firstFeedYear is that of the oldest feed; it has the earlier CVEs, too.
const firstFeedYear = 2002

// collectFeeds collects the feed of each year. A failed year does not concern others.
func (c *collector) collectFeeds(ctx context.Context) error {
	var errs []error
	last := c.now().Year()
	for year := cmp.Or(c.firstYear, firstFeedYear); year <= last; year++ {
		err := c.collectYear(ctx, year)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if isMissing(err) && c.isExpectedMissing(year) {
			err = nil
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%d: %w", year, err))
		}
		if len(errs) > maxFailedYears {
			errs = append(errs, errors.New("further years were not tried"))
			break
		}
	}
	return errors.Join(errs...)
}

// isExpectedMissing reports whether the feed of a year may not be published yet.
func (c *collector) isExpectedMissing(year int) bool {
	now := c.now()
	return year == now.Year() && now.Month() == time.January && c.state.file(feedName(year)) == nil
}

// maxFailedYears bounds the time that an unreachable server takes.
const maxFailedYears = 2

func feedName(year int) string { return fmt.Sprintf("nvd/nvdcve-2.0-%d.json.gz", year) }

// collectYear fetches a feed if its .meta file states other content than the mirror has.
func (c *collector) collectYear(ctx context.Context, year int) error {
	base, name := fmt.Sprintf("nvdcve-2.0-%d", year), feedName(year)
	// The feed may be published between the two requests: then its .meta file is fetched once more.
	for attempt := 1; ; attempt++ {
		meta, err := c.fetchMeta(ctx, base)
		if err != nil {
			return err
		}
		if f := c.state.file(name); f != nil && f.Content == meta.sha256 {
			return nil
		}
		q := c.request(name, c.source.URL+base+".json.gz")
		q.Known = download.Validators{}
		r, err := c.fetch(ctx, q)
		if err != nil {
			return err
		}
		sum, err := unpackedSum(ctx, q.Part, meta.size)
		if err == nil && sum != meta.sha256 {
			err = fmt.Errorf("checksum mismatch: the content has %s, its .meta file states %s", sum, meta.sha256)
		}
		if err == nil {
			return c.putFeed(ctx, q, meta, File{Name: name, URL: q.URL, Validators: r.Validators})
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := errors.Join(fmt.Errorf("%s: %w", q.URL, err), download.Discard(q.Part)); attempt > 1 {
			return err
		}
	}
}

// putFeed puts a feed with the right sum into the mirror.
func (c *collector) putFeed(ctx context.Context, q download.Request, meta feedMeta, f File) error {
	records, err := countRecords(ctx, q.Part)
	if err == nil {
		err = c.checkRecords(f.Name, q.URL, records)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", q.URL, err), download.Discard(q.Part))
	}
	f.Records, f.Date, f.Content = records, meta.modified, meta.sha256
	return c.put(ctx, q.Part, f)
}

func (c *collector) fetchMeta(ctx context.Context, base string) (feedMeta, error) {
	q := c.request("nvd/"+base+".meta", c.source.URL+base+".meta")
	q.MaxBytes, q.Progress = maxMetaBytes, nil
	b, err := c.fetchSmall(ctx, q)
	if err != nil {
		return feedMeta{}, err
	}
	meta, err := parseMeta(b)
	if err != nil {
		return feedMeta{}, fmt.Errorf("%s: %w", q.URL, err)
	}
	return meta, nil
}
