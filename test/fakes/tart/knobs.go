package main

// The knobs in addition to those of the guest. The package comment says what they do.
const (
	knobVersion         = "version"
	knobHang            = "hang"
	knobLimit           = "limit"
	knobSlotHeld        = "slot-held"
	knobSlots           = "slots-dir"
	knobLeases          = "leases-file"
	knobVNCDelay        = "vnc-delay"
	knobNoVNC           = "no-vnc"
	knobVZError         = "vz-error"
	knobNoSoftnet       = "no-softnet"
	knobCloneDelay      = "clone-delay"
	knobDiskFull        = "disk-full"
	knobInterruptDelay  = "interrupt-delay"
	knobCrash           = "crash"
	knobNetworkError    = "network-error"
	knobRecovery        = "recovery-partition"
	knobScreenShareWait = "screen-share-wait"
)
