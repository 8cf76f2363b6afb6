package vulndbtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
)

// WriteNVDFeed writes a feed in the form of NVD's API 2.0 with n generated CVEs, about as large and
// as varied as real ones: some 5 kB each, four criteria on average, a few with thousands. The same
// seed produces the same bytes.
func WriteNVDFeed(w io.Writer, n int, seed uint64) error {
	out := bufio.NewWriterSize(w, 1<<20)
	fmt.Fprintf(out,
		`{"resultsPerPage":%d,"startIndex":0,"totalResults":%d,"format":"NVD_CVE","version":"2.0","timestamp":"2026-08-21T03:00:00.000","vulnerabilities":[`, n, n)
	g := &generator{rand.New(rand.NewPCG(seed, 1))}
	for i := range n {
		if i > 0 {
			fmt.Fprint(out, ",")
		}
		b, err := json.Marshal(g.cve(i))
		if err != nil {
			return err
		}
		if _, err := out.Write(b); err != nil {
			return err
		}
	}
	fmt.Fprint(out, "]}\n")
	return out.Flush()
}

type generator struct{ *rand.Rand }

type object = map[string]any

func (g *generator) cve(i int) object {
	id := fmt.Sprintf("CVE-%d-%04d", 1999+i%28, 1000+i/28)
	c := object{
		"id": id, "sourceIdentifier": "cve@example.org", "published": "2020-01-02T03:04:05.000",
		"lastModified": "2026-08-20T01:02:03.000",
		"vulnStatus":   "Analyzed", "cveTags": []any{},
		"descriptions": []object{{"lang": "en", "value": g.words(60)}, {"lang": "es", "value": g.words(60)}},
		"weaknesses": []object{
			{"source": "nvd@nist.gov", "type": "Primary", "description": []object{{"lang": "en", "value": "CWE-79"}}},
		},
		"references": g.references(),
	}
	if g.IntN(25) == 0 {
		c["vulnStatus"] = "Rejected"
		return object{"cve": c}
	}
	c["metrics"] = g.metrics()
	c["configurations"] = g.configurations()
	return object{"cve": c}
}

// words returns a text of n words, which compresses about as well as that of real advisories.
func (g *generator) words(n int) string {
	var b strings.Builder
	for range n {
		if g.IntN(6) == 0 { // a name or number
			fmt.Fprintf(&b, "%s%x ", g.pick("v", "lib", "foo_", "x"), g.IntN(1<<24))
			continue
		}
		b.WriteString(vocabulary[g.IntN(len(vocabulary))] + " ")
	}
	return b.String()
}

// vocabulary is of descriptions.
var vocabulary = strings.Fields(`a an and are arbitrary argument attack attacker attackers authenticated authentication
	because before bypass buffer by call can cause certain check code command component condition configuration
	contains control cookie crafted cross-site data database default denial dereference device directory disclosure
	discovered due during element error escalation exists exploit exposure expression extension field file files
	filter firmware fixed flaw following format from function handler has header heap host image implementation
	improper in include including incorrect information injection input insufficient integer interface into is issue
	kernel lack leads library limit local management memory message method missing module network not object of on
	operation option or out-of-bounds output overflow page parameter parser parsing password path payload permission
	permissions plugin pointer policy possible privileges process product protocol proxy query race read release
	remote request requests resource response restriction root script scripting security sensitive server service
	session settings software special specially stack state statement string system that the this through time to
	token traversal type unauthenticated unauthorized unspecified update upload url use user users using validation
	value version versions via victim vulnerability vulnerable was web when which with within without write xml`)

func (g *generator) references() []object {
	var list []object
	for range 1 + g.IntN(8) {
		list = append(list, object{"url": "https://example.org/advisories/" +
			strings.ReplaceAll(g.words(6), " ",
				"/"), "source": "cve@example.org", "tags": []string{"Third Party Advisory"}})
	}
	return list
}

func (g *generator) pick(of ...string) string { return of[g.IntN(len(of))] }

func (g *generator) metrics() object {
	vector := "CVSS:3.1/AV:" + g.pick("N", "L", "A") + "/AC:" + g.pick("L", "H") + "/PR:" + g.pick("N", "L", "H") +
		"/UI:" + g.pick("N", "R") +
		"/S:" + g.pick("U", "C") + "/C:" + g.pick("N", "L", "H") + "/I:" + g.pick("N", "L", "H") + "/A:H"
	return object{
		"cvssMetricV31": []object{
			{
				"source": "nvd@nist.gov", "type": "Primary", "exploitabilityScore": 2.8, "impactScore": 5.9,
				"cvssData": object{"version": "3.1", "vectorString": vector, "baseScore": 7.5, "baseSeverity": "HIGH"},
			},
			{
				"source": "cve@example.org", "type": "Secondary",
				"cvssData": object{"version": "3.1", "vectorString": vector, "baseScore": 7.5},
			},
		},
		"cvssMetricV2": []object{{"source": "nvd@nist.gov", "type": "Primary", "cvssData": object{
			"version": "2.0", "vectorString": "AV:N/AC:" + g.pick("L", "M", "H") + "/Au:N/C:P/I:P/A:P",
			"baseScore": 7.5,
		}}},
	}
}

func (g *generator) configurations() []object {
	count := 1 + g.IntN(6)
	if g.IntN(3000) == 0 {
		count = 2000
	}
	vendor := fmt.Sprintf("vendor%d", g.IntN(9000))
	var match []object
	for i := range count {
		product := fmt.Sprintf("product%d", g.IntN(20))
		if count == 2000 {
			product = fmt.Sprintf("product%d", i)
		}
		m := object{"vulnerable": true, "criteria": "cpe:2.3:a:" + vendor + ":" + product +
			":*:*:*:*:*:*:*:*", "matchCriteriaId": fmt.Sprintf("%032X", g.Uint64())}
		if g.IntN(2) == 0 {
			m["versionStartIncluding"] = fmt.Sprintf("%d.0", g.IntN(9))
		}
		m["versionEndExcluding"] = fmt.Sprintf("%d.%d.%d", 9+g.IntN(9), g.IntN(30), g.IntN(30))
		match = append(match, m)
	}
	conf := object{"nodes": []object{{"operator": "OR", "negate": false, "cpeMatch": match}}}
	if g.IntN(10) == 0 {
		conf["operator"] = "AND"
		conf["nodes"] = append(conf["nodes"].([]object), object{"operator": "OR", "negate": false, "cpeMatch": []object{
			{
				"vulnerable": false, "criteria": "cpe:2.3:o:microsoft:windows:-:*:*:*:*:*:*:*",
				"matchCriteriaId": fmt.Sprintf("%032X", g.Uint64()),
			},
		}})
	}
	return []object{conf}
}
