package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/atomicfile"
	"github.com/buildyard/buildyard/internal/scan/vulndb/extsort"
	"github.com/buildyard/buildyard/internal/scan/vulndb/feed"
)

// writeDatabase joins the collected records into a file and puts it in place.
func (c *collector) writeDatabase(ctx context.Context, f *atomicfile.File) (*Report, error) {
	if err := c.writeSections(ctx, f.File); err != nil {
		return nil, err
	}
	report := &Report{Sources: c.counts.sourceReports(), Ignored: c.ignoredFiles}
	db, err := vulndb.Open(f.Name())
	if err != nil {
		return nil, err
	}
	report.Info = db.Info()
	if i := report.Info; i.Advisories+i.Vulnerabilities+i.Applicabilities == 0 {
		return nil, errors.Join(c.noAdvisoriesError(report), db.Close())
	}
	return report, errors.Join(db.Close(), f.Commit())
}

// noAdvisoriesError returns the error of a build without any advisory, with its likely reason.
func (c *collector) noAdvisoriesError(r *Report) error {
	err := fmt.Errorf("no usable advisory found in %s", strings.Join(c.options.Inputs, ", "))
	for _, s := range r.Sources {
		if len(s.Rejections) > 0 {
			return fmt.Errorf("%w: rejected: %s: %s: %s", err, s.Name, s.Rejections[0].Record, s.Rejections[0].Reason)
		}
	}
	if r.Ignored > 0 {
		err = fmt.Errorf("%w: %d files are not advisory feeds", err, r.Ignored)
	}
	return err
}

func (c *collector) writeSections(ctx context.Context, f *os.File) error {
	w, err := vulndb.NewWriter(f, c.options.buildDate(c.counts.sourceInfos()))
	if err != nil {
		return err
	}
	products := extsort.New(c.options.Temp, c.options.MaxMemory/4)
	defer products.Remove()
	c.reportProgress("join")
	if err := c.passNewest(ctx); err != nil {
		return err
	}
	descriptions := extsort.New(c.options.Temp, c.options.MaxMemory/4)
	defer descriptions.Remove()
	names := extsort.New(c.options.Temp, c.options.MaxMemory/8)
	defer names.Remove()
	if err := c.joinVulnerabilities(ctx, w, joined{products, descriptions, names}); err != nil {
		return err
	}
	c.reportProgress("write")
	if err := c.writeProducts(ctx, w, products); err != nil {
		return err
	}
	if err := c.writeAdvisories(ctx, w); err != nil {
		return err
	}
	if err := c.writeCode(ctx, w); err != nil {
		return err
	}
	if err := c.writeProductNames(ctx, w, names); err != nil {
		return err
	}
	if err := c.writeDescriptions(ctx, w, descriptions); err != nil {
		return err
	}
	return w.Close(c.counts.sourceInfos())
}

// writeCode writes the code that advisories name, the last of those with one key, which have the same date.
func (c *collector) writeCode(ctx context.Context, w *vulndb.Writer) error {
	return writeLast(ctx, c.code, func(value []byte) error {
		var g vulndb.AdvisoryCode
		if err := g.UnmarshalBinary(value); err != nil {
			return err
		}
		return c.skipRefused(w.Code(g), g.ID)
	})
}

// writeDescriptions writes the descriptions, which are sorted by ID.
func (c *collector) writeDescriptions(ctx context.Context, w *vulndb.Writer, descriptions *extsort.Sorter) error {
	return descriptions.Each(func(_, value []byte) error {
		var d vulndb.Description
		if err := d.UnmarshalBinary(value); err != nil {
			return err
		}
		return errors.Join(ctx.Err(), c.skipRefused(w.Description(d), d.ID))
	})
}

func (c *collector) reportProgress(stage string) {
	c.options.Progress(Progress{Stage: stage, Records: c.recordCount, Rejected: c.rejectedCount})
}

// joined are the sorters of what joinVulnerabilities does not write itself.
type joined struct{ products, descriptions, names *extsort.Sorter }

// joinVulnerabilities writes each vulnerability from all its records, and sorts its configurations by product, its
// description by ID, and the names of its products.
func (c *collector) joinVulnerabilities(ctx context.Context, w *vulndb.Writer, to joined) error {
	var now *mergedVulnerability
	end := func() error {
		if now == nil {
			return nil
		}
		if err := c.skipRefused(w.Vulnerability(now.result()), now.vulnerability.ID); err != nil {
			return err
		}
		return errors.Join(now.sortProducts(to.products, to.names), now.sortDescription(to.descriptions))
	}
	err := c.facts.Each(func(key, value []byte) error {
		if now == nil || now.vulnerability.ID != string(key) {
			if err := errors.Join(end(), ctx.Err()); err != nil {
				return err
			}
			now = newMergedVulnerability(string(key))
		}
		return now.add(value)
	})
	return errors.Join(err, end())
}

// skipRefused counts a record that does not fit into the file, and continues.
func (c *collector) skipRefused(err error, id string) error {
	if !errors.Is(err, vulndb.ErrRecordLimit) {
		return err
	}
	c.rejectFile(feed.Rejection{Feed: "database", Record: id, Reason: err.Error()})
	return nil
}

// sortDescription passes the description to the sorter.
func (j *mergedVulnerability) sortDescription(descriptions *extsort.Sorter) error {
	d := j.description.Trimmed()
	if d.IsEmpty() || !j.isReported() {
		return nil
	}
	b, err := d.AppendBinary(nil)
	if err != nil {
		return err
	}
	return descriptions.Add([]byte(d.ID), b)
}

// sortProducts passes the configurations to the sorter, for each product that they name as
// vulnerable, and the names of these. A rejected CVE applies to nothing.
func (j *mergedVulnerability) sortProducts(products, names *extsort.Sorter) error {
	if j.vulnerability.Rejected {
		return nil
	}
	repositories := repositoriesOf(j.description.References)
	n := uint32(0)
	var last []byte
	for _, raw := range j.applicabilities {
		if bytes.Equal(raw, last) {
			continue
		}
		last = raw
		var a vulndb.Applicability
		if err := a.UnmarshalBinary(raw); err != nil {
			return err
		}
		all := newProductApplicability(a)
		if err := all.sortNames(names, repositories); err != nil {
			return err
		}
		for _, p := range all.vulnerableProducts {
			b, err := all.reducedTo(p).AppendBinary(nil)
			if err != nil {
				return err
			}
			key := strings.Join([]string{p.vendor, p.name, a.ID}, "\x00")
			if err := products.Add([]byte(fmt.Sprintf("%s\x00%08x", key, n)), b); err != nil {
				return err
			}
		}
		n++
	}
	return nil
}

// writeProducts writes the applicabilities; equal ones of a product and CVE once.
func (c *collector) writeProducts(ctx context.Context, w *vulndb.Writer, products *extsort.Sorter) error {
	var group, seen []string // key without its number, and the values under it
	return products.Each(func(key, value []byte) error {
		parts := strings.Split(string(key), "\x00")
		if len(parts) != 4 {
			return fmt.Errorf("invalid product key with %d parts", len(parts))
		}
		if !slices.Equal(group, parts[:3]) {
			group, seen = parts[:3], seen[:0]
		}
		if slices.Contains(seen, string(value)) {
			return nil
		}
		seen = append(seen, string(value))
		var a vulndb.Applicability
		if err := a.UnmarshalBinary(value); err != nil {
			return err
		}
		k := vulndb.ApplicabilityKey{Vendor: parts[0], Product: parts[1], Number: uint32(len(seen) - 1)}
		return errors.Join(ctx.Err(), c.skipRefused(w.Applicability(k, a), a.ID))
	})
}

// writeAdvisories writes the last of those with one key, which have the same date.
func (c *collector) writeAdvisories(ctx context.Context, w *vulndb.Writer) error {
	return writeLast(ctx, c.advisories, func(value []byte) error {
		var a vulndb.Advisory
		if err := a.UnmarshalBinary(value); err != nil {
			return err
		}
		return c.skipRefused(w.Advisory(a), a.ID)
	})
}

// writeLast calls write with the last value of each key.
func writeLast(ctx context.Context, sorted *extsort.Sorter, write func(value []byte) error) error {
	var last, value []byte
	err := sorted.Each(func(k, v []byte) error {
		if last != nil && !bytes.Equal(k, last) {
			if err := errors.Join(write(value), ctx.Err()); err != nil {
				return err
			}
		}
		last, value = append(last[:0], k...), append(value[:0], v...)
		return nil
	})
	if err != nil || last == nil {
		return err
	}
	return write(value)
}
