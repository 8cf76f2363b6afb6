package match

import (
	"strings"
	"testing"

	"github.com/facebookincubator/nvdtools/wfn"
)

func TestParseCPE(t *testing.T) {
	tests := []struct {
		in                       string
		ok                       bool
		vendor, product, version string
		targetSW                 string
	}{
		{"cpe:2.3:a:openssl:openssl:1.1.1w:*:*:*:*:*:*:*", true, "openssl", "openssl", "1.1.1w", "*"},
		{
			`cpe:2.3:a:notepad-plus-plus:notepad\+\+:7.1:*:*:*:*:*:*:*`, true, "notepad-plus-plus", "notepad++", "7.1",
			"*",
		},
		{`cpe:2.3:a:a\:b:c\\:1\:2:*:*:*:*:node.js:*:*`, true, "a:b", `c\`, "1:2", "node.js"},
		{`cpe:2.3:a:\*:\-:-:*:*:*:*:*:*:*`, true, `\*`, `\-`, "-", "*"},
		{"cpe:2.3:a:v:p:1:*:*:*:*:*:*", false, "", "", "", ""},
		{"cpe:2.3:a:v:p:1:*:*:*:*:*:*:*:*", false, "", "", "", ""},
		{"a:v:p:1:*:*:*:*:*:*:*", false, "", "", "", ""},
		{"cpe:/a:v:p:1", false, "", "", "", ""},
		{"", false, "", "", "", ""},
	}
	for _, tt := range tests {
		c, ok := parseCPE(tt.in)
		if ok != tt.ok || c.vendor != tt.vendor || c.product != tt.product || c.version != tt.version ||
			c.targetSW != tt.targetSW {
			t.Errorf("%s: got %+v, %v", tt.in, c, ok)
		}
	}
}

// FuzzParseCPE compares with the library that binds CPEs: a text that it accepts has the same parts
// here.
func FuzzParseCPE(f *testing.F) {
	f.Add("a", "apple", "icloud", "1.0", "macos")
	f.Add("a", "a:b", `c\d`, "1.0:*", "node.js")
	f.Add("o", "*", "-", "", "~")
	f.Fuzz(func(t *testing.T, part, vendor, product, version, target string) {
		c, ok := parseCPE(strings.Join([]string{"cpe:2.3", part, vendor, product, version, "*:*:*:*", target, "*:*"},
			":"))
		if ok && len(c.vendor)+len(c.product) > len(vendor)+len(product)+len(part)+len(version)+len(target) {
			t.Errorf("parts grew: %+v", c)
		}
		a := wfn.Attributes{Part: "a"}
		for to, from := range map[*string]string{
			&a.Vendor: vendor, &a.Product: product, &a.Version: version, &a.TargetSW: target,
		} {
			name, err := wfn.WFNize(from)
			if err != nil || name == "" || strings.ContainsAny(name, "*?") {
				return
			}
			*to = name
		}
		text := a.BindToFmtString()
		c, ok = parseCPE(text)
		plain := strings.NewReplacer(`\`, "")
		if !ok || plain.Replace(c.vendor) != plain.Replace(a.Vendor) ||
			plain.Replace(c.product) != plain.Replace(a.Product) ||
			plain.Replace(c.version) != plain.Replace(a.Version) ||
			plain.Replace(c.targetSW) != plain.Replace(a.TargetSW) {
			t.Errorf("%s of %+v: got %+v, %v", text, a, c, ok)
		}
	})
}
