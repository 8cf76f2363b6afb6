package vulndb

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of a description. Sources with more are cut.
const (
	maxTitleBytes     = 200
	maxTextBytes      = 600
	maxReferences     = 10
	maxReferenceBytes = 300
)

// Description is what sources write about a vulnerability for people. Matches do not depend on it.
type Description struct {
	ID         string   // a CVE ID, or that of an advisory without one
	Title      string   // one line, at most 200 bytes; "" where no source has one
	Text       string   // at most 600 bytes, in lines; may be Markdown; "" where no source has one
	References []string // http and https addresses of web pages, sorted, at most 10
}

// Trimmed returns the description within the limits. Texts that are cut end with three dots.
func (d Description) Trimmed() Description {
	d.Title = cutText(strings.Join(strings.Fields(d.Title), " "), maxTitleBytes)
	d.Text = cutText(strings.TrimSpace(strings.ReplaceAll(d.Text, "\r\n", "\n")), maxTextBytes)
	var refs []string
	for _, r := range d.References {
		scheme, _, _ := strings.Cut(r, "://")
		if len(r) <= maxReferenceBytes && (scheme == "https" || scheme == "http") && utf8.ValidString(r) &&
			!strings.ContainsAny(r, " \t\r\n\"<>") {
			refs = append(refs, r)
		}
	}
	slices.Sort(refs)
	refs = slices.Compact(refs)
	d.References = refs[:min(len(refs), maxReferences)]
	if len(d.References) == 0 {
		d.References = nil
	}
	return d
}

// IsEmpty reports whether nothing is described.
func (d Description) IsEmpty() bool { return d.Title == "" && d.Text == "" && len(d.References) == 0 }

// cutText returns at most limit bytes of a text, as valid UTF-8.
func cutText(s string, limit int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= limit {
		return s
	}
	return strings.TrimSpace(strings.ToValidUTF8(s[:limit-len("...")], "")) + "..."
}

func (e *encoder) description(d Description) {
	e.str(d.Title)
	e.str(d.Text)
	e.strs(d.References)
}

func (d *decoder) description(id string) Description {
	return Description{ID: id, Title: d.str(), Text: d.str(), References: d.strs()}
}

// AppendBinary appends the description.
func (d Description) AppendBinary(b []byte) ([]byte, error) {
	e := encoder{b}
	e.str(d.ID)
	e.description(d)
	return e.buf, nil
}

// UnmarshalBinary reads what AppendBinary appended.
func (d *Description) UnmarshalBinary(b []byte) error {
	r := newDecoder(b)
	id := r.str()
	*d = r.description(id)
	return r.finish()
}

// Description adds a description; calls are in the order of IDs.
func (w *Writer) Description(d Description) error {
	w.encoder.buf = w.encoder.buf[:0]
	w.encoder.description(d)
	return w.addEntry(descriptionSection, []byte(d.ID), w.encoder.buf)
}

// Description returns what sources write about an ID, and false when the database has nothing. Databases of schema 1
// have no descriptions, each in an entry, or groups of them.
func (db *DB) Description(id string) (Description, bool, error) {
	if t := db.trees[descriptionSection]; t.entryCount > 0 {
		b, found, err := t.get([]byte(id))
		if err != nil || !found {
			return Description{}, false, err
		}
		r := newDecoder(b)
		d := r.description(id)
		return d, true, r.finish()
	}
	packed, found, err := db.trees[textSection].floor([]byte(id))
	if err != nil || !found {
		return Description{}, false, err
	}
	return findText(packed, id)
}
