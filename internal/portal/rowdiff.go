package portal

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
)

// A page that refreshes has most rows of its tables already. Each row has a mark made of its content; a refresh
// names the marks of the rows that the page has, and gets an empty row in place of each of them. Ages in a row
// count on in the browser, so they are not part of the mark.

const (
	headerRows   = "Buildyard-Rows" // of a refresh: the marks of the rows that the page has, with spaces
	maxKnownRows = 1000
)

var (
	rowBegin  = []byte(`<tr id="`)
	rowEnd    = []byte("</tr>")
	timeBegin = []byte("<time ")
	timeEnd   = []byte("</time>")
)

// knownRows returns the marks of the rows that a page has.
func knownRows(r *http.Request) map[string]bool {
	known := map[string]bool{}
	for mark := range strings.FieldsSeq(r.Header.Get(headerRows)) {
		if len(known) == maxKnownRows {
			break
		}
		known[mark] = true
	}
	return known
}

// markRows adds to each row of a page that has an ID its mark, and empties rows whose mark is known.
func markRows(page []byte, known map[string]bool) []byte {
	out := make([]byte, 0, len(page)+len(page)/32)
	for {
		i := bytes.Index(page, rowBegin)
		if i < 0 {
			return append(out, page...)
		}
		out = append(out, page[:i]...)
		row, rest := cutRow(page[i:])
		page = rest
		quote := bytes.IndexByte(row[len(rowBegin):], '"')
		if quote < 0 {
			out = append(out, row...)
			continue
		}
		id := row[:len(rowBegin)+quote+1]
		mark := rowMark(row)
		out = append(append(append(append(out, id...), ` data-mark="`...), mark...), '"')
		if known[mark] {
			out = append(out, " data-same></tr>"...)
			continue
		}
		out = append(out, row[len(id):]...)
	}
}

// cutRow splits a text that begins with a row after that row.
func cutRow(text []byte) (row, rest []byte) {
	end := bytes.Index(text, rowEnd)
	if end < 0 {
		return text, nil
	}
	return text[:end+len(rowEnd)], text[end+len(rowEnd):]
}

// rowMark returns the mark of a row: a hash of all but the text of its times.
func rowMark(row []byte) string {
	sum := sha256.New()
	for {
		i := bytes.Index(row, timeBegin)
		if i < 0 {
			break
		}
		tag := bytes.IndexByte(row[i:], '>')
		end := bytes.Index(row[i:], timeEnd)
		if tag < 0 || end < tag {
			break
		}
		_, _ = sum.Write(row[:i+tag])
		row = row[i+end:]
	}
	_, _ = sum.Write(row)
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:6])
}
