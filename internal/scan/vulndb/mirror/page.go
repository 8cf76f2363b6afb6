package mirror

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/buildyard/buildyard/internal/scan/vulndb/feed"
)

// page is what a page of NVD's API has.
type page struct {
	start, total int // index of its first record, and the records of all pages
	records      int
}

const (
	maxPageBytes   = 1 << 30 // of an unpacked page
	maxPageRecords = 100_000
	maxTotal       = 100_000_000
)

// readPage reads a page in gzip form to its end.
func readPage(file string) (page, error) {
	f, err := os.Open(file)
	if err != nil {
		return page{}, err
	}
	defer f.Close()
	z, err := gzip.NewReader(bufio.NewReaderSize(f, 64<<10))
	if err != nil {
		return page{}, err
	}
	return parsePage(io.LimitReader(z, maxPageBytes))
}

// parsePage reads the numbers of a page and counts its records.
func parsePage(r io.Reader) (page, error) {
	p := page{start: -1, total: -1}
	stated := -1
	fields := map[string]*int{"startIndex": &p.start, "totalResults": &p.total, "resultsPerPage": &stated}
	dec := feed.NewDecoder(r)
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return p, errors.New("the page is not a JSON object")
	}
	listed := false
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return p, err
		}
		name, _ := key.(string)
		switch n := fields[name]; {
		case n != nil:
			err = dec.Decode(n)
		case name == "vulnerabilities":
			listed = true
			p.records, err = countElements(dec)
		default:
			var skip json.RawMessage
			err = dec.Decode(&skip)
		}
		if err != nil {
			return p, fmt.Errorf("read the page: %w", err)
		}
	}
	if _, err := dec.Token(); err != nil {
		return p, fmt.Errorf("the page is incomplete: %w", err)
	}
	switch {
	case p.start < 0 || p.total < 0 || p.total > maxTotal || !listed:
		return p, errors.New("the page has no startIndex, totalResults or vulnerabilities")
	case stated != p.records:
		return p, fmt.Errorf("the page has %d records and states %d", p.records, stated)
	}
	return p, nil
}

// countElements reads a list to its end.
func countElements(dec *json.Decoder) (n int, err error) {
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return 0, errors.New("vulnerabilities is not a list")
	}
	for ; dec.More(); n++ {
		var skip json.RawMessage
		if err := dec.Decode(&skip); err != nil {
			return n, err
		}
		if n >= maxPageRecords {
			return n, fmt.Errorf("more than %d records", maxPageRecords)
		}
	}
	_, err = dec.Token()
	return n, err
}
