"""All structs of the wire contract.

Arrives: nothing. Leaves: the class into which each struct is decoded. Survives a crash: nothing.
"""

from __future__ import annotations

from bookkeeper import model, origins
from bookkeeper.rpc.contract import messages, offer_messages, origin_messages

STRUCTS: tuple[type, ...] = (
    offer_messages.AdoptRequest,
    messages.ApplyRequest,
    model.BlockRange,
    messages.BulkProgress,
    messages.ClusterInfo,
    messages.CompactRequest,
    messages.CompactionTicket,
    messages.Condition,
    messages.CopyRequest,
    model.Extent,
    messages.Fault,
    messages.FileMark,
    messages.Hello,
    messages.ImportRequest,
    offer_messages.ImportedLog,
    offer_messages.ImportedSegment,
    model.LocalityGroup,
    offer_messages.OfferAnswer,
    offer_messages.OfferedSegment,
    offer_messages.RelayFacts,
    messages.OperationInfo,
    messages.QuarantinedRange,
    messages.ReplicateRequest,
    messages.ReplicateResult,
    messages.ReplicationConfig,
    messages.ReplicationChange,
    origins.RootLog,
    origin_messages.HandedOn,
    origin_messages.RootQuestion,
    origin_messages.RootStanding,
    model.RowRange,
    messages.ScanPage,
    messages.ScanRequest,
    offer_messages.SegmentPart,
    offer_messages.SegmentsOffer,
    messages.ServedTablets,
    messages.SourceBlock,
    model.StreamKey,
    messages.TableInfo,
    messages.TableUsage,
    messages.TabletAssignment,
    messages.TabletLocation,
    messages.TabletProblem,
    model.TargetKey,
    messages.TargetStatus,
    messages.ReplicationReport,
    messages.WorkItem,
    messages.WorkReport,
    messages.WriteBatch,
    messages.WriteResult,
)
"""A struct of the contract is decoded into the class of its name."""
