package hostscan

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/scan/report"
)

// A finding of a package of the operating system names a component of the document.
func TestReferencesOfFindings(t *testing.T) {
	metadata := &api.ScanPackageMetadata{Distribution: "debian:12", Source: "openssl", Arch: "amd64"}
	pack := api.ScanPackage{Name: "openssl", Version: "3.0.11-1", Type: "deb", Metadata: metadata}
	other := pack
	other.Metadata = &api.ScanPackageMetadata{Distribution: "debian:12", Source: "openssl", Arch: "arm64"}
	o := &reportOptions{globals: &globals{}, section: vulnerabilitiesSection}
	doc := o.toReport(api.HostReport{
		Packages: []api.HostPackage{{ScanPackage: other}},
		Vulnerabilities: []api.HostVulnerability{{
			Vulnerability: api.HostFinding{ID: "CVE-2024-1"},
			Package: api.HostFindingPackage{
				Name: pack.Name, Version: pack.Version, Type: pack.Type, Metadata: metadata,
			},
		}},
	}, api.HostStatus{})
	var out bytes.Buffer
	if err := report.Write(&out, report.CycloneDX, []report.Report{doc}, report.Options{Now: time.Now()}); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Components []struct {
			Ref string `json:"bom-ref"`
		} `json:"components"`
		Vulnerabilities []struct {
			Affects []struct {
				Ref string `json:"ref"`
			} `json:"affects"`
		} `json:"vulnerabilities"`
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Components) != 2 || len(got.Vulnerabilities) != 1 || len(got.Vulnerabilities[0].Affects) != 1 {
		t.Fatalf("%+v", got)
	}
	if ref := got.Vulnerabilities[0].Affects[0].Ref; ref != got.Components[1].Ref && ref != got.Components[0].Ref {
		t.Errorf("%s is none of %+v", ref, got.Components)
	}
}
