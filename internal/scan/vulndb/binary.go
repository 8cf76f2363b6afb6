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
	_ encoding.BinaryAppender    = Description{}
	_ encoding.BinaryUnmarshaler = (*Description)(nil)
	_ encoding.BinaryAppender    = AdvisoryCode{}
	_ encoding.BinaryUnmarshaler = (*AdvisoryCode)(nil)
)

func internNone(string) uint64 { return 0 }

func resolveNone(uint64) (string, error) { return "", ErrDamaged }

// AppendBinary appends the advisory.
func (a Advisory) AppendBinary(b []byte) ([]byte, error) {
	e := encoder{b}
	e.advisory(internNone, a)
	return e.buf, nil
}

// UnmarshalBinary reads what AppendBinary appended.
func (a *Advisory) UnmarshalBinary(b []byte) error {
	d := newDecoder(b)
	*a = d.advisory(resolveNone)
	return d.finish()
}

// AppendBinary appends the vulnerability.
func (v Vulnerability) AppendBinary(b []byte) ([]byte, error) {
	e := encoder{b}
	e.str(v.ID)
	e.vulnerability(internNone, v)
	return e.buf, nil
}

// UnmarshalBinary reads what AppendBinary appended.
func (v *Vulnerability) UnmarshalBinary(b []byte) error {
	d := newDecoder(b)
	id := d.str()
	*v = d.vulnerability(resolveNone, id)
	return d.finish()
}

// AppendBinary appends the applicability.
func (a Applicability) AppendBinary(b []byte) ([]byte, error) {
	e := encoder{b}
	e.str(a.ID)
	e.applicability(internNone, a, "")
	return e.buf, nil
}

// UnmarshalBinary reads what AppendBinary appended.
func (a *Applicability) UnmarshalBinary(b []byte) error {
	d := newDecoder(b)
	id := d.str()
	*a = d.applicability(resolveNone, id, "")
	return d.finish()
}
