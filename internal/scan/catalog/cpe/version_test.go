package cpe

import (
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// The versions of the pod are those in its podspecs, with the version of OpenSSL in a comment there.
func TestOpenSSLOfPod(t *testing.T) {
	for version, want := range map[string]string{
		"3.1.5004": "3.1.5", "3.3.2000": "3.3.2", "1.1.2301": "1.1.1w", "1.1.17": "1.1.1h", "1.1.171": "1.1.1h",
		"1.0.2.19": "1.0.2t", "1.1.2": "1.1.2", "x": "x", "1.0.2.99": "1.0.2", "": "",
	} {
		if got := UpstreamVersion(catalog.Package{
			Kind: catalog.Pod, Name: "OpenSSL-Universal", Version: version,
		}); got != want {
			t.Errorf("%q is %q, want %q", version, got, want)
		}
	}
}

func TestVersionsOfJDKs(t *testing.T) {
	cask := []string{"/opt/homebrew/Caskroom/x/1/y"}
	for _, c := range []struct {
		p    catalog.Package
		want string
	}{
		{catalog.Package{Kind: catalog.Runtime, Name: "openjdk", Version: "1.8.0_292"}, "1.8.0_292"},
		{catalog.Package{Kind: catalog.Brew, Name: "temurin@8", Version: "8,392,08", Locations: cask}, "8.0.392"},
		{catalog.Package{Kind: catalog.Brew, Name: "temurin", Version: "21.0.1,12", Locations: cask}, "21.0.1"},
	} {
		if got := UpstreamVersion(c.p); got != c.want {
			t.Errorf("%s %s is %q, want %q", c.p.Name, c.p.Version, got, c.want)
		}
	}
	exact := ExactVersions(catalog.Package{Kind: catalog.Brew, Name: "openjdk@8", Version: "1.8.0-292"})
	if !slices.Contains(exact, "8-update292") || !slices.Contains(exact, "1.8.0-update_292") {
		t.Errorf("got %v", exact)
	}
	if exact := ExactVersions(catalog.Package{Kind: catalog.Brew, Name: "openjdk", Version: "17.0.1"}); exact != nil {
		t.Errorf("got %v", exact)
	}
}

func TestProductNames(t *testing.T) {
	cask := []string{"/opt/homebrew/Caskroom/x/1/y"}
	for _, c := range []struct {
		p    catalog.Package
		want string
	}{
		{catalog.Package{Kind: catalog.Brew, Name: "gst-plugins@1"}, "gst-plugins gst_plugins libgst-plugins"},
		{catalog.Package{Kind: catalog.Brew, Name: "libheif"}, "libheif"},
		{catalog.Package{Kind: catalog.Brew, Name: "wireshark-app", Locations: cask}, "wireshark"},
		{catalog.Package{Kind: catalog.Pod, Name: "OpenSSL-Universal"}, "openssl libopenssl"},
		{catalog.Package{Kind: catalog.Brew, Name: "@"}, ""},
	} {
		if got := strings.Join(ProductNames(c.p), " "); got != c.want {
			t.Errorf("%s: got %q, want %q", c.p.Name, got, c.want)
		}
	}
}

// Each product in the table with an edition or a target software has the first two, too.
func TestPartsOfTable(t *testing.T) {
	got := curatedProducts()["cask\tfirefox@esr"]
	want := []Product{
		{Vendor: "mozilla", Product: "firefox_esr", Curated: true},
		{Vendor: "mozilla", Product: "firefox", Edition: "esr", Curated: true},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
	if uv := curatedProducts()["brew\tuv"]; len(uv) != 1 || uv[0].TargetSW != "rust" || uv[0].Edition != "" {
		t.Errorf("got %+v", uv)
	}
	if none, known := curatedFor(catalog.Package{
		Kind: catalog.Brew, Name: "spark",
	}, caskIdentity); !known || len(none) > 0 {
		t.Errorf("got %v, %v", none, known)
	}
	if !IsPackagedVendor("gnu") || IsPackagedVendor("anchore") {
		t.Error("GNU has many formulae, and anchore few")
	}
}
