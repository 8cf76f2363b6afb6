package api

// Names that types had before. They go with the next minor release.
type (
	// Adopted is the former name of OrphanOutcome.
	//
	// Deprecated: use OrphanOutcome.
	Adopted = OrphanOutcome

	// Adoption is the former name of OrphanDecision.
	//
	// Deprecated: use OrphanDecision.
	Adoption = OrphanDecision

	// ConsoleCall is the former name of ConsoleRequest.
	//
	// Deprecated: use ConsoleRequest.
	ConsoleCall = ConsoleRequest

	// Errand is the former name of CacheJob. (glossary:allow)
	//
	// Deprecated: use CacheJob.
	Errand = CacheJob

	// ErrandKind is the former name of CacheJobKind.
	//
	// Deprecated: use CacheJobKind.
	ErrandKind = CacheJobKind

	// ErrandStage is the former name of CacheJobStage.
	//
	// Deprecated: use CacheJobStage.
	ErrandStage = CacheJobStage

	// ErrandStatus is the former name of CacheJobStatus.
	//
	// Deprecated: use CacheJobStatus.
	ErrandStatus = CacheJobStatus

	// FileReceipt is the former name of UploadResult.
	//
	// Deprecated: use UploadResult.
	FileReceipt = UploadResult

	// Held is the former name of InventoryItem.
	//
	// Deprecated: use InventoryItem.
	Held = InventoryItem

	// HeldDetail is the former name of InventoryDetail.
	//
	// Deprecated: use InventoryDetail.
	HeldDetail = InventoryDetail

	// HeldVersion is the former name of CachedVersion.
	//
	// Deprecated: use CachedVersion.
	HeldVersion = CachedVersion

	// HostAnswer is the former name of HostEnvelope.
	//
	// Deprecated: use HostEnvelope.
	HostAnswer = HostEnvelope

	// HostGone is the former name of HostRemovedPackage.
	//
	// Deprecated: use HostRemovedPackage.
	HostGone = HostRemovedPackage

	// HostScanned is the former name of HostScanResult.
	//
	// Deprecated: use HostScanResult.
	HostScanned = HostScanResult

	// LinkPort is the former name of NodePortRule.
	//
	// Deprecated: use NodePortRule.
	LinkPort = NodePortRule

	// LinkVM is the former name of NodeVM.
	//
	// Deprecated: use NodeVM.
	LinkVM = NodeVM

	// LogTaken is the former name of LogAppendResult.
	//
	// Deprecated: use LogAppendResult.
	LogTaken = LogAppendResult

	// NodeScanLeft is the former name of NodeScanTruncated.
	//
	// Deprecated: use NodeScanTruncated.
	NodeScanLeft = NodeScanTruncated

	// PassAnswer is the former name of RegistryTokenResponse.
	//
	// Deprecated: use RegistryTokenResponse.
	PassAnswer = RegistryTokenResponse

	// PassRequest is the former name of RegistryTokenRequest.
	//
	// Deprecated: use RegistryTokenRequest.
	PassRequest = RegistryTokenRequest

	// PastInstance is the former name of HistoryInstance.
	//
	// Deprecated: use HistoryInstance.
	PastInstance = HistoryInstance

	// RegistryAside is the former name of RegistryQuarantined.
	//
	// Deprecated: use RegistryQuarantined.
	RegistryAside = RegistryQuarantined

	// ScanUnjudged is the former name of ScanNotEvaluated.
	//
	// Deprecated: use ScanNotEvaluated.
	ScanUnjudged = ScanNotEvaluated

	// ScanUnread is the former name of ScanUnreadable.
	//
	// Deprecated: use ScanUnreadable.
	ScanUnread = ScanUnreadable

	// StatePin is the former name of StateRequirements.
	//
	// Deprecated: use StateRequirements.
	StatePin = StateRequirements

	// TemplateHolder is the former name of TemplateNode.
	//
	// Deprecated: use TemplateNode.
	TemplateHolder = TemplateNode

	// UnknownVM is the former name of OrphanedVM.
	//
	// Deprecated: use OrphanedVM.
	UnknownVM = OrphanedVM

	// Upkeep is the former name of StorageJob.
	//
	// Deprecated: use StorageJob.
	Upkeep = StorageJob

	// UpkeepProgress is the former name of StorageJobProgress.
	//
	// Deprecated: use StorageJobProgress.
	UpkeepProgress = StorageJobProgress

	// UpkeepRequest is the former name of StorageJobRequest.
	//
	// Deprecated: use StorageJobRequest.
	UpkeepRequest = StorageJobRequest
)

// Names that constants had before. They go with the next minor release.
const (
	// Deprecated: use CacheJobPull.
	ErrandPull = CacheJobPull

	// Deprecated: use CacheJobRemove.
	ErrandRemove = CacheJobRemove

	// Deprecated: use CacheJobDrop.
	ErrandDrop = CacheJobDrop

	// Deprecated: use CacheJobAccepted.
	ErrandAccepted = CacheJobAccepted

	// Deprecated: use CacheJobWorking.
	ErrandWorking = CacheJobWorking

	// Deprecated: use CacheJobDone.
	ErrandDone = CacheJobDone

	// Deprecated: use CacheJobFailed.
	ErrandFailed = CacheJobFailed

	// Deprecated: use CacheJobDropped.
	ErrandDropped = CacheJobDropped

	// Deprecated: use StorageJobCheck.
	UpkeepCheck = StorageJobCheck

	// Deprecated: use StorageJobRepair.
	UpkeepRepair = StorageJobRepair

	// Deprecated: use StorageJobGC.
	UpkeepGC = StorageJobGC

	// Deprecated: use StorageJobNone.
	UpkeepNone = StorageJobNone

	// Deprecated: use StorageJobRunning.
	UpkeepRunning = StorageJobRunning

	// Deprecated: use StorageJobDone.
	UpkeepDone = StorageJobDone

	// Deprecated: use StorageJobFailed.
	UpkeepFailed = StorageJobFailed
)
