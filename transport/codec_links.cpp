#include <cmath>

#include "schema/links.capnp.h"
#include "transport/codec_parts.h"

namespace troupe::transport {
namespace {

void put_sizes(capnp::List<std::uint32_t>::Builder wire, const std::vector<std::uint32_t>& sizes) {
  for (unsigned i = 0; i < sizes.size(); ++i) wire.set(i, sizes[i]);
}

std::vector<std::uint32_t> get_sizes(In& in, capnp::List<std::uint32_t>::Reader wire) {
  in.require(wire.size() <= kProbeSizesMax, "too many sizes are to be measured");
  return in.list<std::uint32_t>(wire, [&](std::uint32_t bytes) {
    return in.in_range(bytes, 1, kProbeBytesMax, "a size to be measured");
  });
}

void put_names(Out& out, capnp::List<capnp::Text>::Builder wire,
               const std::vector<std::string>& names) {
  for (unsigned i = 0; i < names.size(); ++i) wire.set(i, out.name(names[i], "a fabric's name"));
}

std::vector<std::string> get_names(In& in, capnp::List<capnp::Text>::Reader wire) {
  in.require(wire.size() <= kFabricNamesMax, "a fabric has too many names");
  return in.list<std::string>(
      wire, [&](capnp::Text::Reader name) { return in.name(name, "a fabric's name"); });
}

void put_adapter(Out& out, wire::FabricAdapter::Builder wire, const FabricAdapter& adapter) {
  wire.setName(out.name(adapter.name, "an adapter"));
  wire.setPciAddress(out.name(adapter.pci_address, "an adapter's PCI address"));
  wire.setVendorId(out.name(adapter.vendor_id, "an adapter's vendor"));
  wire.setDeviceId(out.name(adapter.device_id, "an adapter's device"));
  wire.setDriver(out.name(adapter.driver, "an adapter's driver"));
  wire.setFirmware(out.name(adapter.firmware, "an adapter's firmware"));
  wire.setNetwork(out.name(adapter.network, "an adapter's network"));
  wire.setState(out.name(adapter.state, "an adapter's state"));
  wire.setBitsPerS(adapter.bits_per_s);
  wire.setMtu(adapter.mtu);
}

FabricAdapter get_adapter(In& in, wire::FabricAdapter::Reader wire) {
  return {in.name(wire.getName(), "an adapter"),
          in.name(wire.getPciAddress(), "an adapter's PCI address"),
          in.name(wire.getVendorId(), "an adapter's vendor"),
          in.name(wire.getDeviceId(), "an adapter's device"),
          in.name(wire.getDriver(), "an adapter's driver"),
          in.name(wire.getFirmware(), "an adapter's firmware"),
          in.name(wire.getNetwork(), "an adapter's network"),
          in.name(wire.getState(), "an adapter's state"),
          wire.getBitsPerS(),
          wire.getMtu()};
}

/// What is measured is a number that is not below 0.
template <class T>
T measured(In& in, T value) {
  in.require(std::isfinite(value) && value >= 0, "a measured figure is impossible");
  return value;
}

void put_figures(wire::LinkFigures::Builder wire, const LinkFigures& figures) {
  wire.setRoundTrips(figures.round_trips);
  wire.setP50Us(figures.p50_us);
  wire.setP99Us(figures.p99_us);
  put_list(figures.rates, wire.initRates(figures.rates.size()), [](auto w, const LinkRate& rate) {
    w.setBytes(rate.bytes);
    w.setThere(rate.there);
    w.setBack(rate.back);
  });
}

LinkFigures get_figures(In& in, wire::LinkFigures::Reader wire) {
  LinkFigures figures{
      wire.getRoundTrips(), measured(in, wire.getP50Us()), measured(in, wire.getP99Us()), {}};
  in.require(wire.getRates().size() <= kProbeSizesMax, "too many sizes were measured");
  figures.rates = in.list<LinkRate>(wire.getRates(), [&](wire::LinkRate::Reader w) {
    return LinkRate{w.getBytes(), measured(in, w.getThere()), measured(in, w.getBack())};
  });
  return figures;
}

void require_probe_size(In& in, std::size_t bytes) {
  in.require(bytes <= kProbeBytesMax, "a probe's size is impossible");
}

}  // namespace

void put(Out& out, wire::FabricPort::Builder wire, const FabricPort& port) {
  wire.setProvider(out.name(port.provider, "a provider"));
  wire.setProviderWhy(out.sentence(port.provider_why));
  put_names(out, wire.initProviders(port.providers.size()), port.providers);
  wire.setInterface(out.name(port.interface, "an interface"));
  wire.setInterfaceWhy(out.sentence(port.interface_why));
  put_names(out, wire.initInterfaces(port.interfaces.size()), port.interfaces);
  wire.setNumaNode(port.numa_node);
  wire.setSpeedMbit(port.speed_mbit);
  put_adapter(out, wire.initAdapter(), port.adapter);
}

FabricPort get(In& in, wire::FabricPort::Reader wire) {
  FabricPort port;
  port.provider = in.name(wire.getProvider(), "a provider");
  port.provider_why = in.sentence(wire.getProviderWhy());
  port.providers = get_names(in, wire.getProviders());
  port.interface = in.name(wire.getInterface(), "an interface");
  port.interface_why = in.sentence(wire.getInterfaceWhy());
  port.interfaces = get_names(in, wire.getInterfaces());
  port.numa_node = in.in_range(wire.getNumaNode(), -1, kInt32Max, "an interface's NUMA node");
  port.speed_mbit = in.in_range(wire.getSpeedMbit(), -1, kInt32Max, "an interface's speed");
  port.adapter = get_adapter(in, wire.getAdapter());
  return port;
}

void put(Out&, wire::NetworkQuery::Builder wire, const NetworkQuery& message) {
  wire.setQuery(message.query);
  wire.setNode(message.node.value);
  wire.setPairsMax(message.pairs_max);
  put_sizes(wire.initSizesBytes(message.sizes.size()), message.sizes);
  wire.setWhileServing(message.while_serving);
  wire.setOneAtATime(message.one_at_a_time);
}

NetworkQuery get(In& in, wire::NetworkQuery::Reader wire) {
  return {wire.getQuery(),        NodeId{wire.getNode()},
          wire.getPairsMax(),     get_sizes(in, wire.getSizesBytes()),
          wire.getWhileServing(), wire.getOneAtATime()};
}

void put(Out& out, wire::NetworkPlan::Builder wire, const NetworkPlan& message) {
  wire.setQuery(message.query);
  put_list(message.nodes, wire.initNodes(message.nodes.size()),
           [&](auto w, const NetworkNode& node) {
             w.setId(node.id.value);
             w.setHost(out.name(node.host, "the host"));
             w.setAddress(out.name(node.address, "the fabric's address"));
             put(out, w.initPort(), node.port);
           });
  wire.setPairs(message.pairs);
  wire.setLeftOut(message.left_out);
  wire.setRounds(message.rounds);
}

NetworkPlan get(In& in, wire::NetworkPlan::Reader wire) {
  NetworkPlan message;
  message.query = wire.getQuery();
  message.nodes = in.list<NetworkNode>(wire.getNodes(), [&](wire::NetworkNode::Reader w) {
    return NetworkNode{NodeId{w.getId()}, in.name(w.getHost(), "the host"),
                       in.name(w.getAddress(), "the fabric's address"), get(in, w.getPort())};
  });
  message.pairs = wire.getPairs();
  message.left_out = wire.getLeftOut();
  message.rounds = wire.getRounds();
  return message;
}

void put(Out& out, wire::PairReport::Builder wire, const PairReport& message) {
  wire.setQuery(message.query);
  wire.setLower(message.lower.value);
  wire.setHigher(message.higher.value);
  put_figures(wire.initFigures(), message.figures);
  wire.setRunning(message.running);
  if (message.error) put(out, wire.initError().initValue(), *message.error);
}

PairReport get(In& in, wire::PairReport::Reader wire) {
  return {wire.getQuery(),          NodeId{wire.getLower()},
          NodeId{wire.getHigher()}, get_figures(in, wire.getFigures()),
          wire.getRunning(),        get_optional_error(in, wire.getError())};
}

void put(Out&, wire::MeasureLink::Builder wire, const MeasureLink& message) {
  wire.setNumber(message.number);
  wire.setPeer(message.peer.value);
  wire.setIncarnation(message.incarnation.value);
  put_sizes(wire.initSizesBytes(message.sizes.size()), message.sizes);
}

MeasureLink get(In& in, wire::MeasureLink::Reader wire) {
  return {wire.getNumber(), NodeId{wire.getPeer()}, Incarnation{wire.getIncarnation()},
          get_sizes(in, wire.getSizesBytes())};
}

void put(Out&, wire::EndMeasure::Builder wire, const EndMeasure& message) {
  wire.setNumber(message.number);
}

EndMeasure get(In&, wire::EndMeasure::Reader wire) { return {wire.getNumber()}; }

void put(Out& out, wire::LinkMeasured::Builder wire, const LinkMeasured& message) {
  wire.setNumber(message.number);
  put_figures(wire.initFigures(), message.figures);
  if (message.error) put(out, wire.initError().initValue(), *message.error);
}

LinkMeasured get(In& in, wire::LinkMeasured::Reader wire) {
  return {wire.getNumber(), get_figures(in, wire.getFigures()),
          get_optional_error(in, wire.getError())};
}

void put(Out&, wire::LinkProbe::Builder wire, const LinkProbe& message) {
  wire.setNumber(message.number);
  wire.setSequence(message.sequence);
  wire.setReplyBytes(message.reply_bytes);
}

LinkProbe get(In& in, wire::LinkProbe::Reader wire) {
  require_probe_size(in, wire.getReplyBytes());
  require_probe_size(in, in.payload().bytes.size());
  return {wire.getNumber(), wire.getSequence(), wire.getReplyBytes(), in.payload()};
}

void put(Out&, wire::LinkEcho::Builder wire, const LinkEcho& message) {
  wire.setNumber(message.number);
  wire.setSequence(message.sequence);
}

LinkEcho get(In& in, wire::LinkEcho::Reader wire) {
  require_probe_size(in, in.payload().bytes.size());
  return {wire.getNumber(), wire.getSequence(), in.payload()};
}

}  // namespace troupe::transport
