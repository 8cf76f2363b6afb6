package api

// USBCount counts the USB devices of one name: GET /api/v1/usb returns a map of them by claim name, or by
// location where a claim has no name.
type USBCount struct {
	Available int `json:"available"` // devices that can be assigned
	Busy      int `json:"busy"`      // used by instances
}

// MACAddress is one managed MAC address: an element of GET /api/v1/macaddr?limit=N.
type MACAddress struct {
	MACAddress string `json:"mac_address"` // capital letters with colons
	InUse      bool   `json:"in_use"`      // assigned to an instance
	InstanceID string `json:"instance_id"` // "" when it is free
}
