package vulndb

import "encoding"

// The builder's temporary files have the records in the form of the database file, but with every
// text inline.
var (
	_ encoding.BinaryAppender    = Advisory{}
	_ encoding.BinaryUnmarshaler = (*Advisory)(nil)
	_ encoding.BinaryAppender    = Vulnerability{}
	_ encoding.BinaryUnmarshaler = (*Vulnerability)(nil)
	_ encoding.BinaryAppender    = Applicability{}
	_ encoding.BinaryUnmarshaler = (*Applicability)(nil)
)

func inline(string) uint64 { return 0 }

func noTexts(uint64) (string, error) { return "", ErrDamaged }

// AppendBinary appends the advisory.
func (a Advisory) AppendBinary(b []byte) ([]byte, error) {
	e := encoder{b}
	e.advisory(inline, a)
	return e.b, nil
}

// UnmarshalBinary reads what AppendBinary appended.
func (a *Advisory) UnmarshalBinary(b []byte) error {
	d := newDecoder(b)
	*a = d.advisory(noTexts)
	return d.end()
}

// AppendBinary appends the vulnerability.
func (v Vulnerability) AppendBinary(b []byte) ([]byte, error) {
	e := encoder{b}
	e.text(v.ID)
	e.vulnerability(inline, v)
	return e.b, nil
}

// UnmarshalBinary reads what AppendBinary appended.
func (v *Vulnerability) UnmarshalBinary(b []byte) error {
	d := newDecoder(b)
	id := d.text()
	*v = d.vulnerability(noTexts, id)
	return d.end()
}

// AppendBinary appends the applicability.
func (a Applicability) AppendBinary(b []byte) ([]byte, error) {
	e := encoder{b}
	e.text(a.ID)
	e.applicability(inline, a, "")
	return e.b, nil
}

// UnmarshalBinary reads what AppendBinary appended.
func (a *Applicability) UnmarshalBinary(b []byte) error {
	d := newDecoder(b)
	id := d.text()
	*a = d.applicability(noTexts, id, "")
	return d.end()
}
