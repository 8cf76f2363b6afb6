package vulndb_test

import (
	"testing"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/vulndbtest"
)

// The names are those of OSV's list of ecosystems.
func TestReleases(t *testing.T) {
	for _, tc := range []struct {
		ecosystem vulndb.Ecosystem
		ask       vulndb.Ecosystem // finds its advisories
		stored    bool
	}{
		{"Debian:12", "Debian:12", true},
		{"Debian", "", false},
		{"Ubuntu:22.04:LTS", "Ubuntu:22.04", true},
		{"Ubuntu:25.10", "Ubuntu:25.10", true},
		{"Ubuntu:Pro:22.04:LTS", "Ubuntu:Pro:22.04", true},
		{"Ubuntu:Pro:FIPS-updates:22.04:LTS", "", false},
		{"Alpine:v3.18", "Alpine:v3.18", true},
		{"Alpine", "", false},
		{"Rocky Linux:9", "Rocky Linux:9", true},
		{"AlmaLinux:9", "AlmaLinux:9", true},
		{"Red Hat:enterprise_linux:9::appstream", "Red Hat:enterprise_linux:9", true},
		{"Red Hat:enterprise_linux:10.0", "Red Hat:enterprise_linux:10", true},
		{"Red Hat:rhel_eus:9.2::appstream", "", false},
		{"SUSE:Linux Enterprise Server 15 SP5", "SUSE:Linux Enterprise Server 15 SP5", true},
		{"SUSE:Linux Enterprise Server 15 SP5-LTSS", "SUSE:Linux Enterprise Server 15 SP5", true},
		{"SUSE:Linux Enterprise Server 12 SP2-LTSS-SAP", "SUSE:Linux Enterprise Server 12 SP2", true},
		{
			"SUSE:Linux Enterprise Module for Basesystem 15 SP5", "SUSE:Linux Enterprise Server 15 SP5", true,
		},
		{"SUSE:Package Hub 15 SP5", "SUSE:Linux Enterprise Server 15 SP5", true},
		{"SUSE:Linux Enterprise Server 16.0", "SUSE:Linux Enterprise Server 16.0", true},
		{"SUSE:Linux Enterprise Micro 5.5", "", false},
		{"SUSE:Manager Server 4.3", "", false},
		{"openSUSE:Leap 15.5", "openSUSE:Leap 15.5", true},
		{"openSUSE:Leap 15.5 NonFree", "openSUSE:Leap 15.5", true},
		{"openSUSE:Tumbleweed", "openSUSE:Tumbleweed", true},
		{"npm", "", false},
	} {
		if got := tc.ecosystem.IsRelease(); got != tc.stored {
			t.Errorf("%s: a stored release: %v, want %v", tc.ecosystem, got, tc.stored)
		}
		if !tc.stored {
			continue
		}
		db := vulndbtest.Open(t, vulndbtest.Content{Advisories: []vulndb.Advisory{
			{ID: "A-1", Source: "osv", Ecosystem: tc.ecosystem, Name: "curl"},
		}})
		found, err := db.Advisories(tc.ask, "curl")
		if err != nil || len(found) != 1 || found[0].Ecosystem != tc.ecosystem {
			t.Errorf("%s: %s finds %+v, %v", tc.ecosystem, tc.ask, found, err)
		}
		for eco, want := range map[vulndb.Ecosystem]bool{tc.ask: true, "Debian:1": false, "npm": false} {
			if got, err := db.HasEcosystem(eco); err != nil || got != want {
				t.Errorf("%s: the database has %s: %v, %v, want %v", tc.ecosystem, eco, got, err, want)
			}
		}
	}
}
