package hv

import (
	"maps"
	"strings"
	"testing"
)

func TestParseVLANs(t *testing.T) {
	got, err := ParseVLANs([]string{"10=br10", " 20", "100-102", "4094", "20", "10=br10"})
	want := map[int]string{10: "br10", 20: "", 100: "", 101: "", 102: "", 4094: ""}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := ParseVLANs(nil); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	for item, say := range map[string]string{
		"": "an ID from 1", "0": "an ID from 1", "4095": "an ID from 1", "x": "an ID from 1", "+1": "an ID from 1",
		"-1": "an ID from 1", "5-": "an ID from 1",
		"9-7": "an ID from 1", "00010": "an ID from 1", "1-2=br0": "cannot have a bridge", "1=": "invalid bridge name",
		"1=../x":                    "invalid bridge name",
		"1=a-name-that-is-too-long": "invalid bridge name", "1=a b": "invalid bridge name",
	} {
		if got, err := ParseVLANs([]string{item}); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%q: %v, %v", item, got, err)
		}
	}
	if _, err := ParseVLANs([]string{"10=a", "10=b"}); err == nil || err.Error() != "VLAN 10 occurs twice" {
		t.Error(err)
	}
}

func FuzzParseVLANs(f *testing.F) {
	f.Add("10=br10,20,100-110")
	f.Fuzz(func(t *testing.T, text string) {
		vlans, err := ParseVLANs(strings.Split(text, ","))
		for id, bridge := range vlans {
			if id < 1 || id > MaxVLAN || bridge != "" && !isBridgeName(bridge) || err != nil {
				t.Errorf("%q: %d=%q, %v", text, id, bridge, err)
			}
		}
	})
}
