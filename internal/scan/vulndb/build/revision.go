package build

import (
	"bytes"
	"context"
	"encoding/binary"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/feed"
)

// A stored revision begins with its date and, unless it has no content, the length of the key by
// which the content is sorted afterwards.
const (
	dateSize      = 8
	keyLengthSize = 4
)

// addRevision sorts the content of a record by its feed and ID, the newest first. A good record
// without content, because it was withdrawn, is sorted too: it replaces the former content. One
// that is bad as a whole replaces nothing.
func (c *collector) addRevision(r feed.Record) error {
	record := []byte(r.Feed + "\x00" + r.ID)
	seconds := int64(0)
	if !r.Modified.IsZero() {
		seconds = max(0, r.Modified.Unix())
	}
	date := binary.BigEndian.AppendUint64(nil, ^uint64(seconds))
	said := 0
	say := func(key, head []byte, appendBinary func([]byte) ([]byte, error)) error {
		said++
		b := binary.BigEndian.AppendUint32(append(c.buf[:0], date...), uint32(len(key)))
		b, err := appendBinary(append(append(b, key...), head...))
		c.buf = b[:0]
		if err != nil {
			return err
		}
		return c.revisions.Add(record, b)
	}
	for _, a := range r.Advisories {
		if err := say(vulndb.AdvisoryKey(a), []byte{advisoryFact}, a.AppendBinary); err != nil {
			return err
		}
	}
	for _, v := range r.Vulnerabilities {
		if err := say([]byte(v.ID), []byte{vulnerabilityFact}, v.AppendBinary); err != nil {
			return err
		}
	}
	for _, list := range r.Configurations {
		for _, a := range list.List {
			if err := say([]byte(list.ID), []byte{configurationFact, byte(list.Rank)}, a.AppendBinary); err != nil {
				return err
			}
		}
	}
	for _, d := range r.Descriptions {
		if err := say([]byte(d.ID), []byte{descriptionFact, byte(d.Rank)}, d.AppendBinary); err != nil {
			return err
		}
	}
	for _, g := range r.Code {
		if err := say(g.Key(), []byte{codeFact}, g.AppendBinary); err != nil {
			return err
		}
	}
	if said > 0 || len(r.Rejected) > 0 {
		return nil
	}
	return c.revisions.Add(record, date)
}

// passNewest passes the content of the newest revision of each record to the sorters of facts and
// advisories. Of revisions with one date all count: their order is unknown.
func (c *collector) passNewest(ctx context.Context) error {
	defer c.revisions.Remove()
	var record, date []byte
	return c.revisions.Each(func(key, value []byte) error {
		if !bytes.Equal(key, record) {
			if err := ctx.Err(); err != nil {
				return err
			}
			record, date = append(record[:0], key...), append(date[:0], value[:dateSize]...)
		}
		if !bytes.Equal(value[:dateSize], date) || len(value) == dateSize {
			return nil
		}
		said := value[dateSize+keyLengthSize:]
		n := binary.BigEndian.Uint32(value[dateSize:])
		switch said[n] {
		case advisoryFact:
			return c.advisories.Add(said[:n], said[n+1:])
		case codeFact:
			return c.code.Add(said[:n], said[n+1:])
		}
		return c.facts.Add(said[:n], said[n:])
	})
}
