package vulndb

import "strings"

const (
	flagNegate = 1 << iota
	flagAllCriteria
)

const (
	flagVulnerable = 1 << iota
	flagStartIncluding
	flagStartExcluding
	flagEndIncluding
	flagEndExcluding
)

// wildcardParts is the end of most CPEs.
const wildcardParts = ":*:*:*:*:*:*:*:*:*:*:*"

// applicability appends the nodes of a configuration. A CPE is encoded by its common prefix with
// the one before it and by the number of open parts at its end; before is what the first is
// compared with.
func (e *encoder) applicability(in interner, a Applicability, before string) {
	e.internedString(in, string(a.Source))
	e.uint(uint64(len(a.Nodes)))
	for _, n := range a.Nodes {
		e.byte(flagIf(flagNegate, n.Negate) | flagIf(flagAllCriteria, n.All))
		e.uint(uint64(len(n.Criteria)))
		for _, c := range n.Criteria {
			e.criterion(c, before)
			before = c.CPE
		}
	}
}

func (d *decoder) applicability(res resolver, id, before string) Applicability {
	a := Applicability{ID: id, Source: Source(d.internedString(res))}
	n := d.itemCount(40)
	for range n {
		flags := d.byte()
		node := Node{Negate: flags&flagNegate != 0, All: flags&flagAllCriteria != 0}
		for range d.itemCount(96) {
			c := d.criterion(before)
			before = c.CPE
			node.Criteria = append(node.Criteria, c)
		}
		if d.err != nil {
			return a
		}
		a.Nodes = append(a.Nodes, node)
	}
	return a
}

func (e *encoder) criterion(c Criterion, before string) {
	texts := []string{c.StartIncluding, c.StartExcluding, c.EndIncluding, c.EndExcluding}
	flags := flagIf(flagVulnerable, c.Vulnerable)
	for i, s := range texts {
		flags |= flagIf(flagStartIncluding<<i, s != "")
	}
	e.byte(flags)
	open := 0
	for 2*open < len(wildcardParts) && strings.HasSuffix(c.CPE, wildcardParts[:2*(open+1)]) {
		open++
	}
	e.byte(byte(open))
	e.deltaString(before, c.CPE[:len(c.CPE)-2*open])
	for _, s := range texts {
		if s != "" {
			e.str(s)
		}
	}
}

func (d *decoder) criterion(before string) Criterion {
	flags := d.byte()
	open := 2 * int(d.byte())
	if open > len(wildcardParts) {
		d.setError("a CPE ends with %d open parts", open/2)
		return Criterion{}
	}
	c := Criterion{Vulnerable: flags&flagVulnerable != 0}
	d.reserve(open)
	c.CPE = d.deltaString(before) + wildcardParts[:open]
	for i, s := range []*string{&c.StartIncluding, &c.StartExcluding, &c.EndIncluding, &c.EndExcluding} {
		if flags&(flagStartIncluding<<i) != 0 {
			*s = d.str()
		}
	}
	return c
}

// cpePrefix returns the usual beginning of the first CPE under a key.
func cpePrefix(vendor, product string) string { return "cpe:2.3:a:" + vendor + ":" + product }
