package feed

import (
	"strings"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// cpeConfiguration describes to which products a CVE applies, in the form that NVD and CVE records
// share. Its nodes are alternatives unless its operator is AND.
type cpeConfiguration struct {
	Operator string    `json:"operator"`
	Negate   bool      `json:"negate"`
	Nodes    []cpeNode `json:"nodes"`
}

type cpeNode struct {
	Operator string     `json:"operator"`
	Negate   bool       `json:"negate"`
	Match    []cpeMatch `json:"cpeMatch"`
}

type cpeMatch struct {
	Vulnerable     bool   `json:"vulnerable"`
	Criteria       string `json:"criteria"`
	StartIncluding string `json:"versionStartIncluding"`
	StartExcluding string `json:"versionStartExcluding"`
	EndIncluding   string `json:"versionEndIncluding"`
	EndExcluding   string `json:"versionEndExcluding"`
}

// addConfigurations adds the configurations of a CVE.
func (r *Record) addConfigurations(id string, rank int, source vulndb.Source, list []cpeConfiguration) {
	c := Configurations{ID: id, Rank: rank}
	for _, conf := range list {
		if conf.Negate {
			r.addRejection("a configuration that is negated as a whole")
			continue
		}
		nodes, ok := r.validNodes(conf)
		switch {
		case len(nodes) == 0:
		case strings.EqualFold(conf.Operator, "AND"):
			if ok {
				c.List = append(c.List, vulndb.Applicability{ID: id, Source: source, Nodes: nodes})
			}
		default:
			for _, n := range nodes {
				c.List = append(c.List, vulndb.Applicability{ID: id, Source: source, Nodes: []vulndb.Node{n}})
			}
		}
	}
	if len(c.List) > 0 {
		r.Configurations = append(r.Configurations, c)
	}
}

// validNodes returns the nodes with valid criteria; all is false when a node is missing, or lost a
// criterion that it requires.
func (r *Record) validNodes(conf cpeConfiguration) (nodes []vulndb.Node, all bool) {
	all = true
	for _, n := range conf.Nodes {
		out := vulndb.Node{Negate: n.Negate, All: strings.EqualFold(n.Operator, "AND")}
		for _, m := range n.Match {
			if !namesProduct(m.Criteria) {
				r.addRejection("a CPE without vendor and product")
				continue
			}
			out.Criteria = append(out.Criteria, vulndb.Criterion{
				CPE: m.Criteria, Vulnerable: m.Vulnerable,
				StartIncluding: m.StartIncluding, StartExcluding: m.StartExcluding,
				EndIncluding: m.EndIncluding, EndExcluding: m.EndExcluding,
			})
		}
		if len(out.Criteria) == 0 || len(out.Criteria) < len(n.Match) && (out.All || out.Negate) {
			all = false
			continue
		}
		nodes = append(nodes, out)
	}
	return nodes, all
}

const cpeParts = 13

// splitCPE splits a formatted string of CPE 2.3 at its unescaped colons.
func splitCPE(s string) []string {
	parts := make([]string, 0, cpeParts)
	begin := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case ':':
			parts = append(parts, s[begin:i])
			begin = i + 1
		}
	}
	return append(parts, s[begin:])
}

// CPEProduct returns part, vendor and product of a CPE; false when it is invalid, or leaves vendor or
// product open.
func CPEProduct(cpe string) (part, vendor, product string, ok bool) {
	p := splitCPE(cpe)
	if len(p) != cpeParts || p[0] != "cpe" || p[1] != "2.3" || len(cpe) > 1000 || strings.Contains(cpe, "\x00") {
		return "", "", "", false
	}
	for _, s := range p[3:5] {
		if s == "" || s == "-" || strings.ContainsAny(s, "*?") &&
			strings.ContainsAny(strings.ReplaceAll(strings.ReplaceAll(s, `\*`, ""), `\?`, ""), "*?") {
			return "", "", "", false
		}
	}
	return p[2], p[3], p[4], p[2] == "a" || p[2] == "o" || p[2] == "h"
}

// CPETarget returns the target software of a CPE that CPEProduct accepts, in lower case without escapes.
func CPETarget(cpe string) string {
	p := splitCPE(cpe)
	if len(p) != cpeParts {
		return ""
	}
	return vulndb.ProductKey(p[10])
}

func namesProduct(cpe string) bool {
	_, _, _, ok := CPEProduct(cpe)
	return ok
}
